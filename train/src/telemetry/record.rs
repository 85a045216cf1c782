//! Where a run's metrics and progress go: kept by the first rank alone.

use std::path::Path;

use super::console::Progress;
use super::{Console, MetricLog, Metrics};
use crate::error::TrainError;

/// The log and the console of the first rank; on the others it keeps silent.
#[derive(Debug)]
pub struct Record(Option<(MetricLog, Console)>);

impl Record {
    /// Opens the log of the run in `out`, and shows progress on `console`.
    ///
    /// # Errors
    /// If the log cannot be opened.
    pub fn open(out: &Path, console: Console) -> Result<Self, TrainError> {
        Ok(Self(Some((MetricLog::open(out)?, console))))
    }

    /// The record of any other rank.
    pub fn silent() -> Self {
        Self(None)
    }

    /// Logs metrics of the state after `step` updates.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn write(&mut self, step: u64, metrics: &Metrics) -> Result<(), TrainError> {
        match &mut self.0 {
            Some((log, _)) => log.write(step, metrics),
            None => Ok(()),
        }
    }

    /// A line for people.
    pub fn line(&self, text: &str) {
        if let Some((_, console)) = &self.0 {
            console.line(text);
        }
    }

    /// One step further.
    pub fn step(&self, progress: Progress) {
        if let Some((_, console)) = &self.0 {
            console.step(progress);
        }
    }

    /// Ends the progress and leaves it on the screen.
    pub fn finish(&self) {
        if let Some((_, console)) = &self.0 {
            console.finish();
        }
    }
}
