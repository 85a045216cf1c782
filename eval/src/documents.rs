//! Summed losses of single documents.

use fulmar_data::{Batch, EvalRows, NO_DOCUMENT};
use fulmar_ep::transport::{Group, TransportError};

use crate::error::EvalError;

/// What was scored of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DocumentSum {
    /// Scored tokens.
    pub tokens: u64,
    /// Sum of their losses in nats.
    pub nats: f64,
}

impl DocumentSum {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.nats += other.nats;
    }
}

/// How many rows an evaluation of the first `max_rows`, 0 for all, takes.
pub fn rows_taken(rows: &EvalRows, max_rows: usize) -> usize {
    if max_rows == 0 { rows.num_rows() } else { max_rows.min(rows.num_rows()) }
}

/// Scores the first `max_rows` rows (0 for all) in batches of `batch_rows` a member of `ranks`, which
/// share the rows; every member gets the sums of all documents, in the order of
/// [`EvalRows::documents`].
///
/// `nats` gives the loss of every position of a batch `[num_rows, seq_len]`; what it gives where the
/// weight is 0 is not read. Losses are summed within a row, then row by row: in one order whatever the
/// batch and however many members there are.
///
/// # Errors
/// The scorer's, and [`EvalError::NotFinite`] naming the first document whose loss is not finite.
pub fn score(
    rows: &EvalRows,
    batch_rows: usize,
    max_rows: usize,
    ranks: &Group,
    mut nats: impl FnMut(&Batch) -> Result<Vec<f32>, EvalError>,
) -> Result<Vec<DocumentSum>, EvalError> {
    let limit = rows_taken(rows, max_rows);
    let mut parts = Parts::new(rows, limit);
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
        let of_rows = eval.document_index.chunks(rows.seq_len());
        for (row, (documents, losses)) in of_rows.zip(losses.chunks(rows.seq_len())).enumerate() {
            parts.add(first + row, documents, losses);
        }
    }
    let sums = parts.over_ranks(ranks)?.of_documents(rows.documents().len());
    for (document, sum) in rows.documents().iter().zip(&sums) {
        if !sum.nats.is_finite() {
            let document = document.id.clone();
            return Err(EvalError::NotFinite { document, found: sum.nats });
        }
    }
    Ok(sums)
}

/// What each row has of each of its documents. A part is one rank's alone, so that adding up ranks
/// rounds nothing.
struct Parts {
    /// Document of each part, row by row.
    documents: Vec<u32>,
    /// Where the parts of each row begin.
    first: Vec<usize>,
    sums: Vec<DocumentSum>,
}

impl Parts {
    fn new(rows: &EvalRows, num_rows: usize) -> Self {
        let (mut documents, mut first) = (Vec::new(), Vec::with_capacity(num_rows));
        for row in 0..num_rows {
            first.push(documents.len());
            documents.extend(rows.documents_of_row(row));
        }
        let sums = vec![DocumentSum::default(); documents.len()];
        Self { documents, first, sums }
    }

    /// Adds the losses of a row; `documents` says whose each position is.
    fn add(&mut self, row: usize, documents: &[u32], losses: &[f32]) {
        let first = self.first[row];
        let end = self.first.get(row + 1).copied().unwrap_or(self.documents.len());
        let mut part = first;
        for (document, loss) in documents.iter().zip(losses) {
            if *document == NO_DOCUMENT {
                continue;
            }
            if self.documents[part] != *document {
                let here = self.documents[first..end].iter().position(|own| own == document);
                part = first + here.expect("a row names every document it scores");
            }
            self.sums[part].add(DocumentSum { tokens: 1, nats: f64::from(*loss) });
        }
    }

    fn over_ranks(mut self, ranks: &Group) -> Result<Self, TransportError> {
        let (tokens, nats): (Vec<_>, Vec<_>) =
            self.sums.iter().map(|sum| (sum.tokens, sum.nats)).unzip();
        let tokens = ranks.sum_u64("evaluated tokens", &tokens)?;
        let nats = ranks.sum_f64("evaluated nats", &nats)?;
        let sums = tokens.into_iter().zip(nats);
        self.sums = sums.map(|(tokens, nats)| DocumentSum { tokens, nats }).collect();
        Ok(self)
    }

    fn of_documents(self, num_documents: usize) -> Vec<DocumentSum> {
        let mut sums = vec![DocumentSum::default(); num_documents];
        for (document, part) in self.documents.iter().zip(self.sums) {
            sums[*document as usize].add(part);
        }
        sums
    }
}
