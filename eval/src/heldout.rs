//! Summed losses over held-out documents, by domain.

use std::collections::BTreeMap;

use fulmar_data::{Batch, EvalRows, NO_DOCUMENT};
use fulmar_ep::transport::{Group, TransportError};
use serde::{Deserialize, Serialize};

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

    fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.nats += other.nats;
        self.bytes += other.bytes;
    }
}

/// One evaluation of one scorer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Sums by domain.
    pub domains: BTreeMap<String, Tally>,
    /// Documents of which only a part was read, and which count nowhere.
    pub partial_documents: u64,
}

impl EvalReport {
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

/// Evaluates the first `max_rows` rows (0 for all) in batches of `batch_rows` a member of `ranks`,
/// which share the rows; every member gets the whole report.
///
/// `nats` gives the loss of every position of a batch `[num_rows, seq_len]`; what it gives where the
/// weight is 0 is not read.
///
/// # Errors
/// The scorer's, and [`EvalError::NotFinite`] naming the first document whose loss is not finite.
pub fn evaluate(
    rows: &EvalRows,
    batch_rows: usize,
    max_rows: usize,
    ranks: &Group,
    mut nats: impl FnMut(&Batch) -> Result<Vec<f32>, EvalError>,
) -> Result<EvalReport, EvalError> {
    let limit = if max_rows == 0 { rows.num_rows() } else { max_rows.min(rows.num_rows()) };
    let mut sums = vec![(0u64, 0f64); rows.documents().len()];
    for start in (0..limit).step_by(batch_rows * ranks.size()) {
        let first = limit.min(start + batch_rows * ranks.rank());
        let own = first..limit.min(first + batch_rows);
        // A rank without rows computes all the same: its experts may be wanted by others.
        let idle = own.is_empty();
        let eval = rows.batch(if idle { 0..1 } else { own });
        let losses = nats(&eval.batch)?;
        if idle {
            continue;
        }
        for (document, loss) in eval.document_index.iter().zip(&losses) {
            if *document != NO_DOCUMENT {
                let (tokens, nats) = &mut sums[*document as usize];
                *tokens += 1;
                *nats += f64::from(*loss);
            }
        }
    }
    let sums = over_ranks(sums, ranks)?;
    let mut report = EvalReport { domains: BTreeMap::new(), partial_documents: 0 };
    for (document, (tokens, nats)) in rows.documents().iter().zip(sums) {
        if tokens != document.scored_tokens {
            report.partial_documents += 1;
            continue;
        }
        if !nats.is_finite() {
            return Err(EvalError::NotFinite { document: document.id.clone(), found: nats });
        }
        let tally = Tally { documents: 1, tokens, nats, bytes: document.source_bytes };
        report.domains.entry(document.domain.clone()).or_default().add(&tally);
    }
    Ok(report)
}

/// Scored tokens and nats of each document over all ranks: its rows may lie on several.
fn over_ranks(sums: Vec<(u64, f64)>, ranks: &Group) -> Result<Vec<(u64, f64)>, TransportError> {
    let (tokens, nats): (Vec<_>, Vec<_>) = sums.into_iter().unzip();
    let tokens = ranks.sum_u64("evaluated tokens", &tokens)?;
    Ok(tokens.into_iter().zip(ranks.sum_f64("evaluated nats", &nats)?).collect())
}
