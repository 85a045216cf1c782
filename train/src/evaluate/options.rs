//! How weights are evaluated.

use std::path::PathBuf;

use fulmar_eval::SuiteConfig;

use crate::config::DataConfig;
use crate::device::DeviceChoice;

/// How weights are evaluated.
#[derive(Debug, Clone, Default)]
pub struct EvaluateOptions {
    /// Completed updates of the checkpoints of a run; the newest one's when empty.
    pub steps: Vec<u64>,
    /// The device.
    pub device: DeviceChoice,
    /// Files of held-out text, instead of the recipe's.
    pub heldout: Vec<PathBuf>,
    /// A store of held-out text, instead of the recipe's.
    pub heldout_store: Option<PathBuf>,
    /// Suites beside the held-out text, instead of the recipe's.
    pub suites: Vec<SuiteConfig>,
    /// Where stores of files are cached, instead of the recipe's place.
    pub cache: Option<PathBuf>,
    /// Rows of a forward pass, which changes no figure; the recipe's when absent.
    pub batch_rows: Option<usize>,
    /// Whether the exchange of training is evaluated beside the one that drops nothing.
    pub as_trained: bool,
}

impl EvaluateOptions {
    /// What is read of weights whose recipe reads `data`.
    pub(super) fn data(&self, data: &DataConfig) -> DataConfig {
        let mut data = data.clone();
        if self.heldout_store.is_some() || !self.heldout.is_empty() {
            data.heldout.clone_from(&self.heldout);
            data.heldout_store.clone_from(&self.heldout_store);
        }
        if let Some(cache) = &self.cache {
            data.cache.clone_from(cache);
        }
        data
    }

    /// The suites of weights whose recipe names `suites`.
    pub(super) fn suites<'a>(&'a self, suites: &'a [SuiteConfig]) -> &'a [SuiteConfig] {
        if self.suites.is_empty() { suites } else { &self.suites }
    }
}
