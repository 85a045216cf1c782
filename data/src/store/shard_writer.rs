//! Writes one token file.

use std::{
    fs::File,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::format::{FORMAT_VERSION, HEADER_BYTES, Header};
use crate::{DataError, Result};

/// A token file under construction.
///
/// Tokens go to disk as they come. The index of the documents is held until the end: 24 bytes and
/// the id per document.
pub(super) struct ShardWriter {
    path: PathBuf,
    out: BufWriter<File>,
    header: Header,
    offsets: Vec<u64>,
    source_bytes: Vec<u64>,
    id_offsets: Vec<u64>,
    ids: Vec<u8>,
}

/// A finished token file.
pub(super) struct FinishedShard {
    pub(super) header: Header,
    pub(super) file_bytes: u64,
    pub(super) blake3: String,
}

impl ShardWriter {
    pub(super) fn create(path: PathBuf, token_bytes: u32) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(DataError::io("create", path.as_path()))?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        out.write_all(&[0; HEADER_BYTES]).map_err(DataError::io("write", path.as_path()))?;
        let header = Header {
            version: FORMAT_VERSION,
            token_bytes,
            num_tokens: 0,
            num_documents: 0,
            source_bytes: 0,
            id_bytes: 0,
        };
        let (offsets, id_offsets) = (vec![0], vec![0]);
        let (source_bytes, ids) = (Vec::new(), Vec::new());
        Ok(Self { path, out, header, offsets, source_bytes, id_offsets, ids })
    }

    pub(super) fn append(&mut self, id: &str, source_bytes: u64, tokens: &[u32]) -> Result<()> {
        let width = self.header.token_bytes as usize;
        for token in tokens {
            self.out
                .write_all(&token.to_le_bytes()[..width])
                .map_err(DataError::io("write", self.path.as_path()))?;
        }
        self.ids.extend_from_slice(id.as_bytes());
        self.header.num_tokens += tokens.len() as u64;
        self.header.num_documents += 1;
        self.header.source_bytes += source_bytes;
        self.header.id_bytes = self.ids.len() as u64;
        self.offsets.push(self.header.num_tokens);
        self.source_bytes.push(source_bytes);
        self.id_offsets.push(self.header.id_bytes);
        Ok(())
    }

    /// Writes index and header, brings the file to disk and takes its checksum.
    pub(super) fn finish(mut self) -> Result<FinishedShard> {
        let path = self.path.clone();
        let (file_bytes, hash) = self.complete().map_err(DataError::io("write", path))?;
        Ok(FinishedShard { header: self.header, file_bytes, blake3: hash.to_hex().to_string() })
    }

    fn complete(&mut self) -> io::Result<(u64, blake3::Hash)> {
        let token_bytes = self.header.num_tokens * u64::from(self.header.token_bytes);
        let padding = (token_bytes.next_multiple_of(8) - token_bytes) as usize;
        self.out.write_all(&[0; 8][..padding])?;
        for numbers in [&self.offsets, &self.source_bytes, &self.id_offsets] {
            for number in numbers {
                self.out.write_all(&number.to_le_bytes())?;
            }
        }
        self.out.write_all(&self.ids)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&self.header.encode())?;
        self.out.flush()?;
        let file = self.out.get_mut();
        file.sync_all()?;
        // Read again rather than hashed on the way, as the header comes first and is known last.
        file.seek(SeekFrom::Start(0))?;
        let mut hasher = blake3::Hasher::new();
        let file_bytes = io::copy(file, &mut hasher)?;
        Ok((file_bytes, hasher.finalize()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
