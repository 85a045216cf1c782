//! The documents of a suite, as rows.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fulmar_data::{Build, DocumentMarks, EvalRows, Store, Tokenizer, find_sources};

use super::config::SuiteConfig;
use super::error::SuiteError;
use crate::heldout::left_out;

/// A suite that was read.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Every document once, in rows.
    pub rows: EvalRows,
}

impl Suite {
    /// Reads a suite, or opens the store that an earlier reading left in `cache`, for rows of
    /// `seq_len` tokens. Relative paths start at the working directory.
    ///
    /// # Errors
    /// [`SuiteError`], naming the suite and what is wrong with its folder, tags or files.
    pub fn open(
        config: &SuiteConfig,
        tokenizer: &Tokenizer,
        marks: DocumentMarks,
        cache: &Path,
        seq_len: usize,
    ) -> Result<Self, SuiteError> {
        let data = || SuiteError::data(&config.name);
        let sources = config.sources()?;
        let files = find_sources(&sources, "").map_err(data())?;
        let build = Build::new(files, tokenizer, marks).reading(SuiteConfig::READING);
        let store = build.run_in_cache(cache).map_err(data())?.store;
        for source in &sources {
            if store.cells().iter().all(|cell| cell.entry().domain != source.name) {
                let (suite, tag) = (config.name.clone(), source.name.clone());
                return Err(SuiteError::NoDocuments { suite, tag });
            }
        }
        Self::of_store(&config.name, Arc::new(store), seq_len)
    }

    /// A suite of a store, whose domains are its tags.
    ///
    /// # Errors
    /// If rows have fewer than two tokens.
    pub fn of_store(name: &str, store: Arc<Store>, seq_len: usize) -> Result<Self, SuiteError> {
        let rows = EvalRows::new(store, seq_len).map_err(SuiteError::data(name))?;
        Ok(Self { name: name.to_owned(), rows })
    }

    /// The same documents in rows of `seq_len` tokens.
    ///
    /// # Errors
    /// As [`of_store`](Self::of_store).
    pub fn in_rows_of(&self, seq_len: usize) -> Result<Self, SuiteError> {
        Self::of_store(&self.name, self.rows.store().clone(), seq_len)
    }

    /// Its tags, in their order.
    pub fn tags(&self) -> BTreeSet<&str> {
        self.rows.documents().iter().map(|document| &document.domain[..]).collect()
    }

    /// Documents of the files that are not in the rows: without a character, and no text at all.
    pub fn left_out(&self) -> (u64, u64) {
        left_out(&self.rows)
    }

    /// Names the contents, whatever their path: files, tags, tokenizer and marks.
    pub fn digest(&self) -> &str {
        &self.rows.store().manifest().build_digest
    }
}
