//! The bytes of a token file, read as what they are.

use std::{borrow::Cow, ops::Range};

use super::format::{Header, Layout, read_u64};

/// A token file in memory, mapped or not. Places of documents and tokens count within the file.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    token_bytes: usize,
}

impl<'a> View<'a> {
    /// `bytes` are as long as the layout says, which is that of `header`.
    pub(crate) fn new(bytes: &'a [u8], layout: &'a Layout, header: &Header) -> Self {
        Self { bytes, layout, token_bytes: header.token_bytes as usize }
    }

    /// Appends the tokens at some places of the file.
    ///
    /// # Panics
    /// Beyond the file's tokens; so the other methods beyond its documents.
    pub(crate) fn read_tokens(&self, range: Range<u64>, tokens: &mut Vec<u32>) {
        let stream = &self.bytes[self.layout.tokens.clone()];
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

    /// Where a document lies.
    pub(crate) fn document_range(&self, document: u64) -> Range<u64> {
        self.number(&self.layout.offsets, document)..self.number(&self.layout.offsets, document + 1)
    }

    /// UTF-8 bytes of a document's source text.
    pub(crate) fn source_bytes(&self, document: u64) -> u64 {
        self.number(&self.layout.source_bytes, document)
    }

    /// A document's place in the file it was read from.
    pub(crate) fn record(&self, document: u64) -> u64 {
        self.number(&self.layout.records, document)
    }

    /// A document's id.
    pub(crate) fn document_id(&self, document: u64) -> Cow<'a, str> {
        let start = self.number(&self.layout.id_offsets, document) as usize;
        let end = self.number(&self.layout.id_offsets, document + 1) as usize;
        String::from_utf8_lossy(&self.bytes[self.layout.ids.clone()][start..end])
    }

    fn number(&self, section: &Range<usize>, index: u64) -> u64 {
        let start = index as usize * 8;
        read_u64(&self.bytes[section.clone()][start..start + 8])
    }
}
