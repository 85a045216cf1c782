//! The documents of many sources, one after the other.

use std::iter;

use crate::{Document, DocumentReader, Result, Source};

/// The documents of all sources in their order; a file is opened when its first document is due.
///
/// Each source ends with its first error.
pub fn documents(
    sources: impl IntoIterator<Item = Source>,
) -> impl Iterator<Item = Result<Document>> {
    sources.into_iter().flat_map(|source| {
        iter::once_with(move || DocumentReader::open(&source)).flat_map(|reader| {
            let (reader, error) = match reader {
                Ok(reader) => (Some(reader), None),
                Err(error) => (None, Some(Err(error))),
            };
            reader.into_iter().flatten().chain(error)
        })
    })
}
