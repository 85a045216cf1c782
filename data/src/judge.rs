//! What stands between a document that was read and a store: rules, and the choice of its cell.

use crate::{CellKey, Document, Reason, Result};

/// What is done with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// It is left out.
    LeaveOut {
        /// Counted in the ledger under this.
        reason: Reason,
        /// What it was found by, such as the id of the document that it repeats.
        evidence: String,
    },
}

/// Decides about documents one by one: a pure function of the document and of what the judge was
/// made with, so that neither order nor threads nor a second reading change a verdict.
pub trait Judge: Send + Sync {
    /// The verdict on one document.
    fn judge(&self, document: &Document) -> Verdict;

    /// Digest of all that the verdicts depend on besides the document, in hex.
    fn digest(&self) -> String;
}

/// Chooses the cell of a document: a pure function, as a [`Judge`].
pub trait Assign: Send + Sync {
    /// The cell of one document.
    ///
    /// # Errors
    /// If the document lacks what the choice needs, such as a score or an embedding; the error
    /// names file and record.
    fn cell(&self, document: &Document) -> Result<CellKey>;

    /// Digest of all that the choice depends on besides the document, in hex.
    fn digest(&self) -> String;
}
