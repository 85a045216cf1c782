//! Where a run's metrics and progress go: kept by the first rank alone.

use std::path::Path;

use super::console::Progress;
use super::{Console, MetricLog, Metrics};
use crate::error::TrainError;
use crate::history::{Event, History};

/// The log and the console of the first rank; on the others it keeps silent.
#[derive(Debug)]
pub struct Record(Option<Open>);

#[derive(Debug)]
struct Open {
    log: MetricLog,
    history: History,
    console: Console,
}

impl Record {
    /// Opens the log of the run in `out`, and shows progress on `console`.
    ///
    /// # Errors
    /// If the log cannot be opened.
    pub fn open(out: &Path, console: Console) -> Result<Self, TrainError> {
        let (log, history) = (MetricLog::open(out)?, History::open(out)?);
        Ok(Self(Some(Open { log, history, console })))
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
            Some(open) => open.log.write(step, metrics),
            None => Ok(()),
        }
    }

    /// Which start of the run this is, from 1; 0 on ranks that keep no record.
    pub fn attempt(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.log.attempt())
    }

    /// An event into the history, and its text as a line for people.
    ///
    /// # Errors
    /// If the history cannot be written.
    pub fn event(&mut self, event: &Event) -> Result<(), TrainError> {
        self.line(&format!("step {}: {}", event.step, event.text));
        self.quiet_event(event)
    }

    /// An event into the history that people are not told of.
    ///
    /// # Errors
    /// If the history cannot be written.
    pub fn quiet_event(&mut self, event: &Event) -> Result<(), TrainError> {
        match &mut self.0 {
            Some(open) => open.history.append(event),
            None => Ok(()),
        }
    }

    /// A line for people.
    pub fn line(&self, text: &str) {
        if let Some(open) = &self.0 {
            open.console.line(text);
        }
    }

    /// One step further.
    pub fn step(&self, progress: Progress) {
        if let Some(open) = &self.0 {
            open.console.step(progress);
        }
    }

    /// Ends the progress and leaves it on the screen.
    pub fn finish(&self) {
        if let Some(open) = &self.0 {
            open.console.finish();
        }
    }
}
