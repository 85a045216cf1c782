//! Files → jobs of some documents, in order, on a thread of its own.

use std::sync::mpsc::Sender;

use super::{Build, budget::Budget};
use crate::{DataError, DocumentReader, Ledger, Outcome};

/// Text of a job in bytes, at least one document: small enough that threads end together, large
/// enough that handing over costs nothing.
const JOB_BYTES: u64 = 1 << 16;

/// Some documents of one file.
pub(super) struct Job {
    /// Counted from 0 without a gap.
    pub(super) number: u64,
    /// The file, as a place among the sources.
    pub(super) source: u32,
    /// What was read, and what its reader has left out.
    pub(super) documents: Vec<Outcome>,
    /// Bytes of text, taken from the budget.
    pub(super) bytes: u64,
    /// What follows the documents.
    pub(super) then: Then,
}

/// What follows the documents of a job.
pub(super) enum Then {
    /// More documents of the file.
    More,
    /// The end of the file: what was read of it.
    End(Ledger),
    /// The error that ended reading.
    Failed(DataError),
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The first file that is not finished.
    pub(super) source: usize,
    /// As many documents of that file are done.
    pub(super) after_documents: u64,
}

impl Build<'_> {
    /// Reads all sources from `start` on and sends their documents. Ends early when nobody listens.
    pub(super) fn read(&self, start: Start, budget: &Budget, jobs: &Sender<Job>) {
        let mut number = 0;
        for (source, file) in self.sources.iter().enumerate().skip(start.source) {
            let after = if source == start.source { start.after_documents } else { 0 };
            let mut send = |documents, bytes, then| {
                let failed = matches!(then, Then::Failed(_));
                let job = Job { number, source: source as u32, documents, bytes, then };
                number += 1;
                budget.take(bytes) && jobs.send(job).is_ok() && !failed
            };
            let alive = match DocumentReader::open_with(file, self.reading) {
                Ok(mut reader) => read_file(&mut reader, after, &mut send),
                Err(error) => send(Vec::new(), 0, Then::Failed(error)),
            };
            if !alive {
                return;
            }
        }
    }
}

/// Sends the documents of a file behind the first `after`. False when nothing more is to be sent.
fn read_file(
    reader: &mut DocumentReader,
    after: u64,
    send: &mut impl FnMut(Vec<Outcome>, u64, Then) -> bool,
) -> bool {
    let (mut documents, mut bytes, mut seen) = (Vec::new(), 0, 0);
    while let Some(outcome) = reader.next_outcome() {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return send(documents, bytes, Then::Failed(error)),
        };
        seen += 1;
        if seen <= after {
            continue;
        }
        bytes += match &outcome {
            Outcome::Document(document) => document.text.len(),
            Outcome::Reject(reject) => reject.raw.len(),
        } as u64;
        documents.push(outcome);
        if bytes >= JOB_BYTES {
            if !send(std::mem::take(&mut documents), bytes, Then::More) {
                return false;
            }
            bytes = 0;
        }
    }
    send(documents, bytes, Then::End(reader.ledger()))
}
