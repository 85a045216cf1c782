//! Losses over held-out documents, by domain.

use std::collections::BTreeMap;

use fulmar_data::{Batch, EvalDocument, EvalRows};
use fulmar_ep::transport::Group;
use serde::{Deserialize, Serialize};

use crate::documents::{DocumentSum, score};
use crate::error::EvalError;

/// Sums over some documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Documents.
    pub documents: u64,
    /// Scored tokens: text tokens that have a context.
    pub tokens: u64,
    /// Sum of losses in nats.
    pub nats: f64,
    /// UTF-8 bytes of the source text.
    pub bytes: u64,
}

impl Tally {
    /// Mean loss in nats a token.
    pub fn loss(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// Bits of all documents over bytes of all documents.
    pub fn bits_per_byte(&self) -> f64 {
        self.nats / std::f64::consts::LN_2 / self.bytes as f64
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.nats += other.nats;
        self.bytes += other.bytes;
    }
}

/// One evaluation of one scorer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Sums by domain, which is the tag of a suite.
    pub domains: BTreeMap<String, Tally>,
    /// Documents of which only a part was read, and which count nowhere.
    pub partial_documents: u64,
    /// Documents of the files without a character, of 0 bytes.
    pub empty_documents: u64,
    /// Documents of the files that are no text: not UTF-8, or no record with one.
    pub rejected_documents: u64,
}

impl EvalReport {
    /// The report of scored documents, `sums` in the order of `rows`.
    pub fn new(rows: &EvalRows, sums: &[DocumentSum]) -> Self {
        let mut report = Self::default();
        for (document, sum) in rows.documents().iter().zip(sums) {
            report.take(&document.domain, &tally(document, *sum), is_partial(document, *sum));
        }
        (report.empty_documents, report.rejected_documents) = left_out(rows);
        report
    }

    /// Adds a document.
    pub(crate) fn take(&mut self, domain: &str, document: &Tally, partial: bool) {
        if partial {
            self.partial_documents += 1;
        } else if let Some(tally) = self.domains.get_mut(domain) {
            tally.add(document);
        } else {
            self.domains.insert(domain.to_owned(), *document);
        }
    }

    /// Sums over all domains.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.domains.values().for_each(|tally| total.add(tally));
        total
    }

    /// Mean over domains of the loss.
    pub fn macro_loss(&self) -> f64 {
        self.mean(Tally::loss)
    }

    /// Mean over domains of bits per byte.
    pub fn macro_bits_per_byte(&self) -> f64 {
        self.mean(Tally::bits_per_byte)
    }

    fn mean(&self, of: fn(&Tally) -> f64) -> f64 {
        self.domains.values().map(of).sum::<f64>() / self.domains.len() as f64
    }
}

/// Documents of the files that are not in the rows: without a character, and no text at all.
pub(crate) fn left_out(rows: &EvalRows) -> (u64, u64) {
    let ledgers = rows.store().manifest().sources.iter().map(|source| &source.ledger);
    ledgers.fold((0, 0), |(empty, rejected), ledger| {
        (empty + ledger.empty, rejected + ledger.invalid_utf8 + ledger.malformed)
    })
}

/// Whether a document was not read to its end, and therefore counts nowhere.
pub(crate) fn is_partial(document: &EvalDocument, sum: DocumentSum) -> bool {
    sum.tokens != document.scored_tokens
}

pub(crate) fn tally(document: &EvalDocument, sum: DocumentSum) -> Tally {
    let DocumentSum { tokens, nats } = sum;
    Tally { documents: 1, tokens, nats, bytes: document.source_bytes }
}

/// Evaluates rows: the report of what [`score`] finds.
///
/// # Errors
/// As [`score`].
pub fn evaluate(
    rows: &EvalRows,
    batch_rows: usize,
    max_rows: usize,
    ranks: &Group,
    nats: impl FnMut(&Batch) -> Result<Vec<f32>, EvalError>,
) -> Result<EvalReport, EvalError> {
    Ok(EvalReport::new(rows, &score(rows, batch_rows, max_rows, ranks, nats)?))
}
