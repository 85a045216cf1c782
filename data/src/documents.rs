//! The documents of many sources, one after the other.

use std::{
    iter,
    sync::{Arc, Mutex},
};

use crate::{Document, DocumentReader, Ledger, ReadOptions, Reject, RejectSink, Result, Source};

/// The documents of all sources in their order, read strictly; a file is opened when its first document
/// is due.
///
/// Each source ends with its first error.
pub fn documents<S: IntoIterator<Item = Source>>(
    sources: S,
) -> impl Iterator<Item = Result<Document>> + use<S> {
    documents_with(sources, ReadOptions::STRICT, &Arc::default())
}

/// As [`documents`], read with these options. What readers leave out is counted in `left_out`.
pub fn documents_with<S: IntoIterator<Item = Source>>(
    sources: S,
    options: ReadOptions,
    left_out: &Arc<Mutex<Ledger>>,
) -> impl Iterator<Item = Result<Document>> + use<S> {
    let left_out = Arc::clone(left_out);
    sources.into_iter().flat_map(move |source| {
        let left_out = Arc::clone(&left_out);
        iter::once_with(move || {
            let reader = DocumentReader::open_with(&source, options)?;
            Ok(reader.rejects_to(Box::new(left_out)))
        })
        .flat_map(|reader| {
            let (reader, error) = match reader {
                Ok(reader) => (Some(reader), None),
                Err(error) => (None, Some(Err(error))),
            };
            reader.into_iter().flatten().chain(error)
        })
    })
}

/// A count of rejects by reason; `documents` has their sum.
impl RejectSink for Ledger {
    fn take(&mut self, reject: Reject) -> Result<()> {
        self.documents += 1;
        self.leave_out(reject.reason);
        Ok(())
    }
}
