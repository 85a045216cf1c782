//! What a cleaning pass reads.

use std::sync::{Arc, Mutex};

use crate::{
    Document, Ledger, ReadOptions, Reason, Result, Source, SourceIdentity, documents_with,
};

/// Files that are cleaned with the same exemptions.
pub struct CleanSource<'a> {
    /// The name in the report.
    pub name: String,
    /// The files that its documents come from.
    pub files: Vec<SourceIdentity>,
    /// Reasons for which nothing of this source is left out.
    pub exempt: Vec<Reason>,
    /// Its documents, file by file.
    pub documents: Box<dyn Iterator<Item = Result<Document>> + 'a>,
}

impl CleanSource<'_> {
    /// One source of a recipe, read as a build reads it: `extra` are reasons beside its own that it is
    /// exempt from. It is opened when its documents are due, and what its reader leaves out is counted
    /// in `left_out`.
    ///
    /// # Errors
    /// [`DataError::Io`](crate::DataError::Io) if a file cannot be read for its digest.
    pub fn new(
        source: &Source,
        options: ReadOptions,
        extra: &[Reason],
        left_out: &Arc<Mutex<Ledger>>,
    ) -> Result<Self> {
        Ok(Self {
            name: source.name().to_owned(),
            files: source.identities(&options.limits)?,
            exempt: [source.exempt(), extra].concat(),
            documents: Box::new(documents_with([source.clone()], options, left_out)),
        })
    }

    /// One file, read strictly.
    ///
    /// # Errors
    /// As [`CleanSource::new`].
    pub fn file(source: &Source, exempt: Vec<Reason>) -> Result<Self> {
        Self::new(source, ReadOptions::STRICT, &exempt, &Arc::default())
    }
}
