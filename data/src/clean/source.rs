//! What a cleaning pass reads.

use super::decisions::SourceFile;
use crate::{Document, Reason, Result, Source, documents};

/// Files that are cleaned with the same exemptions.
pub struct CleanSource<'a> {
    /// The name in the report.
    pub name: String,
    /// The files that its documents come from.
    pub files: Vec<SourceFile>,
    /// Reasons for which nothing of this source is left out.
    pub exempt: Vec<Reason>,
    /// Its documents, file by file.
    pub documents: Box<dyn Iterator<Item = Result<Document>> + 'a>,
}

impl CleanSource<'_> {
    /// One file; it is opened when its documents are due.
    ///
    /// # Errors
    /// [`DataError::Io`](crate::DataError::Io) if the file cannot be read for its digest.
    pub fn file(source: &Source, exempt: Vec<Reason>) -> Result<Self> {
        let file = SourceFile { name: source.name().to_owned(), blake3: source.digest()? };
        Ok(Self {
            name: source.name().to_owned(),
            files: vec![file],
            exempt,
            documents: Box::new(documents([source.clone()])),
        })
    }
}
