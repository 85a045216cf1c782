//! A document.

use std::sync::Arc;

use crate::CellKey;

/// Domain of a document that names none.
pub const DEFAULT_DOMAIN: &str = "default";

/// A piece of text that is read from beginning to end, with what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Name within the corpus; `<file>:<record>` when the record has none, the path under the folder
    /// for a text file.
    pub id: String,
    /// The text, never empty.
    pub text: String,
    /// Domain, [`DEFAULT_DOMAIN`] when neither record nor recipe has one.
    pub domain: String,
    /// Quality level, 0 when neither record nor recipe has one.
    pub quality: u32,
    /// Origin; the name of the file when the record has no `source`.
    pub origin: String,
    /// Name of the file that holds it.
    pub file: Arc<str>,
    /// Its place in the file, counted from 1: the line, the row of the table; 1 for a text file.
    pub record: u64,
    /// A given score of its quality, where the file has one.
    pub score: Option<f64>,
    /// A given embedding of its text, where the file has one.
    pub embedding: Option<Vec<f32>>,
}

impl Document {
    /// The cell that this document belongs to.
    pub fn cell(&self) -> CellKey {
        CellKey { domain: self.domain.clone(), quality: self.quality }
    }
}
