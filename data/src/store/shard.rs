//! One cell's token file, memory-mapped.

use std::{borrow::Cow, fs::File, ops::Range, path::Path};

use memmap2::Mmap;

use super::{
    format::{FORMAT_VERSION, HEADER_BYTES, Header, Layout, read_u64},
    manifest::CellEntry,
};
use crate::{DataError, Result};

/// The documents of one cell, as one stream of tokens with the places where documents begin.
#[derive(Debug)]
pub struct CellShard {
    entry: CellEntry,
    map: Mmap,
    layout: Layout,
    token_bytes: usize,
}

impl CellShard {
    pub(super) fn open(store: &Path, entry: &CellEntry) -> Result<Self> {
        let path = store.join(&entry.file);
        let file = File::open(&path).map_err(DataError::io("open", path.as_path()))?;
        let metadata = file.metadata().map_err(DataError::io("inspect", path.as_path()))?;
        let (found, needed) = (metadata.len(), entry.file_bytes);
        if found != needed {
            return Err(DataError::FileSize { path, found, needed });
        }
        // SAFETY: the mapping is read-only, its size was checked above, and a published store is
        // never written again by us. Another program that shortens the file while we run ends the
        // process by a signal, as for every memory-mapped file.
        let map =
            unsafe { Mmap::map(&file) }.map_err(DataError::io("map to memory", path.as_path()))?;
        let header = check_contents(&path, entry, &map)?;
        let layout = Layout::of(&header).ok_or_else(|| DataError::ShardHeader {
            path: path.clone(),
            field: "num_tokens",
            found: header.num_tokens,
            needed: entry.num_tokens,
        })?;
        let (found, needed) = (layout.ids.end as u64, entry.file_bytes);
        if found != needed {
            return Err(DataError::ShardHeader { path, field: "sections in bytes", found, needed });
        }
        Ok(Self { entry: entry.clone(), map, layout, token_bytes: header.token_bytes as usize })
    }

    /// `<domain>/q<quality>`.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// What the manifest says about the cell.
    pub fn entry(&self) -> &CellEntry {
        &self.entry
    }

    /// Tokens, document marks included.
    pub fn num_tokens(&self) -> u64 {
        self.entry.num_tokens
    }

    /// Documents.
    pub fn num_documents(&self) -> u64 {
        self.entry.num_documents
    }

    /// Appends the tokens at some places of the stream to `tokens`.
    ///
    /// # Panics
    /// If the range reaches beyond [`CellShard::num_tokens`].
    pub fn read_tokens(&self, range: Range<u64>, tokens: &mut Vec<u32>) {
        assert!(range.end <= self.num_tokens(), "{range:?} of {} tokens", self.num_tokens());
        let stream = &self.map[self.layout.tokens.clone()];
        let bytes = range.start as usize * self.token_bytes..range.end as usize * self.token_bytes;
        let bytes = &stream[bytes];
        if self.token_bytes == 2 {
            tokens
                .extend(bytes.chunks_exact(2).map(|t| u32::from(u16::from_le_bytes([t[0], t[1]]))));
        } else {
            let whole = bytes.chunks_exact(4);
            tokens.extend(whole.map(|t| u32::from_le_bytes([t[0], t[1], t[2], t[3]])));
        }
    }

    /// Where a document lies in the stream.
    ///
    /// # Panics
    /// If `document` is not below [`CellShard::num_documents`]; so in the other methods.
    pub fn document_range(&self, document: u64) -> Range<u64> {
        self.number(&self.layout.offsets, document)..self.number(&self.layout.offsets, document + 1)
    }

    /// The document that a place of the stream belongs to.
    pub fn document_at(&self, token: u64) -> u64 {
        // Partition point over the documents' ends; the file is not a slice of u64.
        let (mut low, mut high) = (0, self.num_documents());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.document_range(middle).end <= token {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// UTF-8 bytes of a document's source text.
    pub fn source_bytes(&self, document: u64) -> u64 {
        self.number(&self.layout.source_bytes, document)
    }

    /// A document's id.
    pub fn document_id(&self, document: u64) -> Cow<'_, str> {
        let start = self.number(&self.layout.id_offsets, document) as usize;
        let end = self.number(&self.layout.id_offsets, document + 1) as usize;
        String::from_utf8_lossy(&self.map[self.layout.ids.clone()][start..end])
    }

    fn number(&self, section: &Range<usize>, index: u64) -> u64 {
        let start = index as usize * 8;
        read_u64(&self.map[section.clone()][start..start + 8])
    }
}

/// Compares version, checksum and header with the manifest, in this order: a file of another
/// version is not called damaged.
fn check_contents(path: &Path, entry: &CellEntry, bytes: &[u8]) -> Result<Header> {
    let path = path.to_owned();
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
        let (found, needed) = (bytes.len() as u64, HEADER_BYTES as u64);
        return Err(DataError::FileSize { path, found, needed });
    };
    let header = Header::decode(head);
    // A wrong version in a header that does not match its own checksum is damage.
    if header.version != FORMAT_VERSION && header.is_sealed(head) {
        let (found, needed) = (header.version, FORMAT_VERSION);
        return Err(DataError::StoreVersion { path, found, needed });
    }
    let hash = blake3::hash(bytes).to_hex().to_string();
    if hash != entry.blake3 {
        return Err(DataError::Checksum { path, found: hash, needed: entry.blake3.clone() });
    }
    let fields = [
        ("num_tokens", header.num_tokens, entry.num_tokens),
        ("num_documents", header.num_documents, entry.num_documents),
        ("source_bytes", header.source_bytes, entry.source_bytes),
    ];
    match fields.into_iter().find(|(_, found, needed)| found != needed) {
        Some((field, found, needed)) => Err(DataError::ShardHeader { path, field, found, needed }),
        None => Ok(header),
    }
}
