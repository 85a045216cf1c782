//! A cell's stream of tokens, cut into pages of one row of the longest length each.
//!
//! Documents are laid end to end and cut every `page_len` tokens, so that rows hold no padding; a
//! document that crosses a cut goes on in another row, without its beginning. Shorter rows cut a
//! page again, into equal parts. The incomplete last page is left out of every epoch and counted.

use std::ops::Range;

use crate::Cell;

/// How many pages a cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Tokens of a page.
    pub page_len: u64,
    /// Whole pages.
    pub num_pages: u64,
    /// Tokens behind the last whole page, which are never read.
    pub left_out_tokens: u64,
}

impl Pages {
    /// The pages of a stream.
    pub fn of(num_tokens: u64, page_len: u64) -> Self {
        Self { page_len, num_pages: num_tokens / page_len, left_out_tokens: num_tokens % page_len }
    }

    /// Where a page lies in the stream, in tokens.
    pub fn range(&self, page: u64) -> Range<u64> {
        page * self.page_len..(page + 1) * self.page_len
    }
}

/// Segment ids of a stretch of the stream, and the document of its first token.
///
/// Ids start at 0 and rise by one where a document begins.
pub(crate) fn segment_ids(cell: &Cell, range: Range<u64>) -> (Vec<u32>, u64) {
    let first_document = cell.document_at(range.start);
    let mut ids = Vec::with_capacity((range.end - range.start) as usize);
    let (mut document, mut segment, mut at) = (first_document, 0, range.start);
    while at < range.end {
        let end = cell.document_range(document).end.min(range.end);
        ids.resize(ids.len() + (end - at) as usize, segment);
        (document, segment, at) = (document + 1, segment + 1, end);
    }
    (ids, first_document)
}
