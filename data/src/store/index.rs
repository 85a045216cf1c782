//! The documents of a shard that is being written: where each lies, and where it came from.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// A document on its way into a store.
#[derive(Clone, Copy, Debug)]
pub struct NewDocument<'a> {
    /// Its name in the corpus.
    pub id: &'a str,
    /// The file it was read from, as a place in [`Manifest::sources`](crate::Manifest::sources).
    pub source: u32,
    /// Its place in that file, counted from 1.
    pub record: u64,
    /// UTF-8 bytes of its text.
    pub source_bytes: u64,
    /// Its tokens, document marks included.
    pub tokens: &'a [u32],
}

/// Neighbours in a shard that were read from one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The file, as a place in [`Manifest::sources`](crate::Manifest::sources).
    pub source: u32,
    /// Place in the file of the first of them, counted from 1.
    pub first_record: u64,
    /// Place of the last; records between that went elsewhere are not among them.
    pub last_record: u64,
    /// How many.
    pub documents: u64,
}

/// Where documents lie: 32 bytes and the id for each, held in memory.
#[derive(Debug)]
pub(crate) struct Index {
    offsets: Vec<u64>,
    source_bytes: Vec<u64>,
    records: Vec<u64>,
    id_offsets: Vec<u64>,
    ids: Vec<u8>,
    spans: Vec<Span>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            offsets: vec![0],
            source_bytes: Vec::new(),
            records: Vec::new(),
            id_offsets: vec![0],
            ids: Vec::new(),
            spans: Vec::new(),
        }
    }

    pub(crate) fn append(&mut self, document: &NewDocument<'_>) {
        self.offsets.push(self.num_tokens() + document.tokens.len() as u64);
        self.source_bytes.push(document.source_bytes);
        self.records.push(document.record);
        self.ids.extend_from_slice(document.id.as_bytes());
        self.id_offsets.push(self.ids.len() as u64);
        match self.spans.last_mut() {
            Some(span) if span.source == document.source => {
                span.last_record = document.record;
                span.documents += 1;
            }
            _ => self.spans.push(Span {
                source: document.source,
                first_record: document.record,
                last_record: document.record,
                documents: 1,
            }),
        }
    }

    pub(crate) fn num_tokens(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    pub(crate) fn num_documents(&self) -> u64 {
        self.source_bytes.len() as u64
    }

    pub(crate) fn source_bytes(&self) -> u64 {
        self.source_bytes.iter().sum()
    }

    pub(crate) fn id_bytes(&self) -> u64 {
        self.ids.len() as u64
    }

    pub(crate) fn into_spans(self) -> Vec<Span> {
        self.spans
    }

    /// Writes the sections that stand behind the tokens.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for numbers in [&self.offsets, &self.source_bytes, &self.records, &self.id_offsets] {
            for number in numbers {
                out.write_all(&number.to_le_bytes())?;
            }
        }
        out.write_all(&self.ids)
    }
}
