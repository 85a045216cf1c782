//! A run as its folder tells it: the plan in force, the curves of its log, what happened.
//!
//! Reads only, also while the run goes on.

use std::path::{Path, PathBuf};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::{Event, History, STARTED};
use crate::operations;
use crate::recipe;
use crate::samples::{self, Sample};
use crate::telemetry::names;
use crate::telemetry::stitch::Curve;

/// A run that was begun.
#[derive(Debug, Clone)]
pub struct PastRun {
    /// Its folder.
    pub folder: PathBuf,
    /// The plan of its newest start, or of its recipe where it has not started, with every change of
    /// plan since.
    pub config: RunConfig,
    /// What happened, oldest first.
    pub history: Vec<Event>,
}

impl PastRun {
    /// The run in `folder`.
    ///
    /// # Errors
    /// If it holds no `recipe.toml`, or what it holds cannot be read.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let history = History::read(folder)?;
        let newest = history.iter().rev().find_map(|event| event.detail.get("recipe")?.as_str());
        let mut config = match newest {
            Some(text) => recipe::parse(text, &folder.display().to_string(), &[])?,
            None => recipe::load(&folder.join("recipe.toml"), &[])?,
        };
        let started = history.iter().rposition(|event| event.what == STARTED).unwrap_or(0);
        for (_, operation) in operations::of_events(&history[started..], folder)? {
            config = operation.apply(&config)?;
        }
        Ok(Self { folder: folder.to_owned(), config, history })
    }

    /// Starts of the run, oldest first.
    pub fn starts(&self) -> impl Iterator<Item = &Event> {
        self.history.iter().filter(|event| event.what == STARTED)
    }

    /// Digest of the training and held-out data, as the newest start has it.
    pub fn data_digest(&self) -> Option<&str> {
        self.starts().last()?.detail.get("data")?.as_str()
    }

    /// Digest of the held-out text, as the newest start has it; runs of the first release have none.
    pub fn heldout_digest(&self) -> Option<&str> {
        self.starts().last()?.detail.get("heldout")?.as_str()
    }

    /// The curves of `metrics`, in their order, in one pass over the log. A metric of which a point
    /// is due at each update is counted for gaps where it is the training loss.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn curves(&self, metrics: &[&str]) -> Result<Vec<Curve>, TrainError> {
        let every = |metric: &str| u64::from(metric == names::LOSS);
        let metrics: Vec<(&str, u64)> =
            metrics.iter().map(|metric| (*metric, every(metric))).collect();
        Curve::read_all(&self.folder, &metrics)
    }

    /// What the model wrote at evaluations, in the order in which it did.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn samples(&self) -> Result<Vec<Sample>, TrainError> {
        samples::read(&self.folder)
    }

    /// Loss over all held-out text, `eval/heldout/macro_loss`, by completed updates.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn heldout(&self) -> Result<Curve, TrainError> {
        Curve::read(&self.folder, names::HELDOUT_LOSS, 0)
    }
}
