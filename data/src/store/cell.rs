//! One cell of a store: its shards, read as one stream.

use std::{borrow::Cow, ops::Range, path::Path};

use super::{manifest::CellEntry, shard::Shard, view::View};
use crate::Result;

/// The documents of one cell, as one stream of tokens with the places where documents begin.
///
/// How the stream is cut into files makes no difference to what is read.
#[derive(Debug)]
pub struct Cell {
    entry: CellEntry,
    shards: Vec<Shard>,
    /// Tokens before each shard, and in the end all.
    token_starts: Vec<u64>,
    /// Documents before each shard, and in the end all.
    document_starts: Vec<u64>,
}

impl Cell {
    /// Opens the files, which checks sizes and headers.
    pub(super) fn open(store: &Path, entry: &CellEntry) -> Result<Self> {
        let shards: Vec<Shard> =
            entry.shards.iter().map(|shard| Shard::open(store, shard)).collect::<Result<_>>()?;
        let starts = |count: fn(&Shard) -> u64| {
            let mut starts = vec![0];
            for shard in &shards {
                starts.push(starts[starts.len() - 1] + count(shard));
            }
            starts
        };
        let token_starts = starts(|shard| shard.entry().num_tokens);
        let document_starts = starts(|shard| shard.entry().num_documents);
        Ok(Self { entry: entry.clone(), shards, token_starts, document_starts })
    }

    /// The cell's name: `<domain>/q<quality>`, or `c07q3`.
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
    /// If the range reaches beyond [`Cell::num_tokens`].
    pub fn read_tokens(&self, range: Range<u64>, tokens: &mut Vec<u32>) {
        assert!(range.end <= self.num_tokens(), "{range:?} of {} tokens", self.num_tokens());
        let mut at = range.start;
        let mut shard = holder(&self.token_starts, at);
        while at < range.end {
            let (start, end) = (self.token_starts[shard], self.token_starts[shard + 1]);
            let end = end.min(range.end);
            self.shards[shard].view().read_tokens(at - start..end - start, tokens);
            (at, shard) = (end, shard + 1);
        }
    }

    /// Where a document lies in the stream.
    ///
    /// # Panics
    /// If `document` is not below [`Cell::num_documents`]; so in the other methods.
    pub fn document_range(&self, document: u64) -> Range<u64> {
        let (shard, view, document) = self.find(document);
        let (start, range) = (self.token_starts[shard], view.document_range(document));
        start + range.start..start + range.end
    }

    /// The document that a place of the stream belongs to.
    pub fn document_at(&self, token: u64) -> u64 {
        let shard = holder(&self.token_starts, token);
        let (view, token) = (self.shards[shard].view(), token - self.token_starts[shard]);
        // Partition point over the documents' ends; the file is not a slice of u64.
        let (mut low, mut high) = (0, self.shards[shard].entry().num_documents);
        while low < high {
            let middle = low + (high - low) / 2;
            if view.document_range(middle).end <= token {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.document_starts[shard] + low
    }

    /// UTF-8 bytes of a document's source text.
    pub fn source_bytes(&self, document: u64) -> u64 {
        let (_, view, document) = self.find(document);
        view.source_bytes(document)
    }

    /// A document's id.
    pub fn document_id(&self, document: u64) -> Cow<'_, str> {
        let (_, view, document) = self.find(document);
        view.document_id(document)
    }

    /// Where a document was read: the file, as a place in the manifest's
    /// [`sources`](crate::Manifest::sources), and its place in that file, counted from 1.
    pub fn document_origin(&self, document: u64) -> (u32, u64) {
        let (shard, view, place) = self.find(document);
        let mut before = 0;
        let spans = &self.shards[shard].entry().spans;
        let span = spans.iter().find(|span| {
            before += span.documents;
            place < before
        });
        (span.map_or(0, |span| span.source), view.record(place))
    }

    /// How long documents are: entry k counts those of at least 2^k tokens and fewer than 2^(k+1),
    /// entry 0 also those of none. As long as the longest document needs.
    pub fn length_histogram(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for shard in &self.shards {
            for document in 0..shard.entry().num_documents {
                let range = shard.view().document_range(document);
                let bin = (range.end - range.start).max(1).ilog2() as usize;
                counts.resize(counts.len().max(bin + 1), 0);
                counts[bin] += 1;
            }
        }
        counts
    }

    /// Its files, for checks.
    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The shard that holds a document, and the document's place there.
    fn find(&self, document: u64) -> (usize, View<'_>, u64) {
        let shard = holder(&self.document_starts, document);
        (shard, self.shards[shard].view(), document - self.document_starts[shard])
    }
}

/// The last shard that starts at or before a place; the first alone is asked for nothing.
fn holder(starts: &[u64], place: u64) -> usize {
    if starts.len() == 2 {
        return 0;
    }
    (starts.partition_point(|start| *start <= place) - 1).min(starts.len() - 2)
}
