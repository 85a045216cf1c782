//! The suites of one call, each opened and planned in rows once for all weights that share it.

use std::sync::Arc;

use fulmar_data::{DocumentMarks, Tokenizer};
use fulmar_eval::{Suite, SuiteConfig};
use fulmar_model::ModelConfig;

use crate::assemble;
use crate::config::DataConfig;
use crate::error::TrainError;

/// What decides about the rows of a suite.
#[derive(Debug, PartialEq)]
struct Key {
    /// None for the held-out text of `data`.
    suite: Option<SuiteConfig>,
    /// Where texts and stores lie, and nothing of the training data.
    data: DataConfig,
    marks: DocumentMarks,
    tokenizer: String,
    seq_len: usize,
}

/// Suites that were opened.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<(Key, Arc<Suite>)>);

impl Texts {
    /// The held-out text of `data`, then `suites`, in rows of `model`.
    ///
    /// # Errors
    /// If a suite cannot be opened, or the tokenizer does not fit the model.
    pub(super) fn of(
        &mut self,
        model: &ModelConfig,
        data: &DataConfig,
        suites: &[SuiteConfig],
    ) -> Result<Vec<Arc<Suite>>, TrainError> {
        SuiteConfig::validate_all(suites)?;
        let tokenizer = assemble::tokenizer(model, data)?;
        let all = std::iter::once(None).chain(suites.iter().map(Some));
        all.map(|suite| self.one(suite, &tokenizer, data, model.max_seq_len)).collect()
    }

    fn one(
        &mut self,
        suite: Option<&SuiteConfig>,
        tokenizer: &Tokenizer,
        data: &DataConfig,
        seq_len: usize,
    ) -> Result<Arc<Suite>, TrainError> {
        let key = Key {
            suite: suite.cloned(),
            data: DataConfig {
                heldout: data.heldout.clone(),
                heldout_store: data.heldout_store.clone(),
                cache: data.cache.clone(),
                ..DataConfig::default()
            },
            marks: data.marks,
            tokenizer: tokenizer.digest().to_owned(),
            seq_len,
        };
        if let Some((_, opened)) = self.0.iter().find(|(other, _)| *other == key) {
            return Ok(opened.clone());
        }
        let opened = Arc::new(match suite {
            Some(suite) => assemble::suite(suite, tokenizer, data, seq_len)?,
            None => assemble::heldout(tokenizer, data, seq_len)?,
        });
        self.0.push((key, opened.clone()));
        Ok(opened)
    }
}
