//! Writes one token file.

use std::{
    fs::File,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::PathBuf,
};

use super::{
    format::{FORMAT_VERSION, HEADER_BYTES, Header},
    index::{Index, NewDocument},
    manifest::ShardEntry,
};
use crate::{DataError, Result};

/// A token file under construction: tokens go to disk as they come, the index at the end.
pub(super) struct ShardWriter {
    path: PathBuf,
    /// Path within the store.
    file: String,
    out: BufWriter<File>,
    token_bytes: u32,
    index: Index,
    /// Of one document, kept for its space.
    bytes: Vec<u8>,
}

impl ShardWriter {
    /// Starts the file at `path`, which the manifest calls `file`.
    pub(super) fn create(path: PathBuf, file: String, token_bytes: u32) -> Result<Self> {
        let out = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(DataError::io("create", path.as_path()))?;
        let mut out = BufWriter::with_capacity(1 << 16, out);
        out.write_all(&[0; HEADER_BYTES]).map_err(DataError::io("write", path.as_path()))?;
        Ok(Self { path, file, out, token_bytes, index: Index::new(), bytes: Vec::new() })
    }

    pub(super) fn append(&mut self, document: &NewDocument<'_>) -> Result<()> {
        self.bytes.clear();
        encode_tokens(document.tokens, self.token_bytes, &mut self.bytes);
        self.out.write_all(&self.bytes).map_err(DataError::io("write", self.path.as_path()))?;
        self.index.append(document);
        Ok(())
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// Writes index and header, brings the file to disk and takes its checksum.
    pub(super) fn finish(mut self) -> Result<ShardEntry> {
        let path = self.path.clone();
        tracing::debug!(path = %path.display(), "closing token file");
        let (file_bytes, hash) = self.complete().map_err(DataError::io("write", path))?;
        Ok(ShardEntry {
            file: self.file,
            file_bytes,
            blake3: hash.to_hex().to_string(),
            num_tokens: self.index.num_tokens(),
            num_documents: self.index.num_documents(),
            source_bytes: self.index.source_bytes(),
            spans: self.index.into_spans(),
        })
    }

    fn complete(&mut self) -> io::Result<(u64, blake3::Hash)> {
        let header = header_of(&self.index, self.token_bytes);
        write_index(&self.index, &header, &mut self.out)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header.encode())?;
        self.out.flush()?;
        let file = self.out.get_mut();
        file.sync_all()?;
        // Read again rather than hashed on the way, as the header comes first and is known last.
        file.seek(SeekFrom::Start(0))?;
        let mut hasher = blake3::Hasher::new();
        let file_bytes = io::copy(file, &mut hasher)?;
        Ok((file_bytes, hasher.finalize()))
    }
}

/// Appends tokens as they stand in a file.
pub(crate) fn encode_tokens(tokens: &[u32], token_bytes: u32, bytes: &mut Vec<u8>) {
    bytes.reserve(tokens.len() * token_bytes as usize);
    if token_bytes == 2 {
        bytes.extend(tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()));
    } else {
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    }
}

/// The header of a file with these documents.
pub(crate) fn header_of(index: &Index, token_bytes: u32) -> Header {
    Header {
        version: FORMAT_VERSION,
        token_bytes,
        num_tokens: index.num_tokens(),
        num_documents: index.num_documents(),
        source_bytes: index.source_bytes(),
        id_bytes: index.id_bytes(),
    }
}

/// Writes what stands behind the tokens.
pub(crate) fn write_index(index: &Index, header: &Header, out: &mut impl Write) -> io::Result<()> {
    let token_bytes = header.num_tokens * u64::from(header.token_bytes);
    let padding = (token_bytes.next_multiple_of(8) - token_bytes) as usize;
    out.write_all(&[0; 8][..padding])?;
    index.write(out)
}
