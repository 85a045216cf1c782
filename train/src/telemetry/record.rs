//! Where a run's metrics and progress go: kept by the first rank alone.
//!
//! A file that cannot be written stops no training. It is said once, what is missing is kept and
//! tried again with every further line, and the last words say how it ended.

use std::path::Path;

use super::console::Progress;
use super::loads::{LoadLog, Loads};
use super::{Console, MetricLog, Metrics, TensorBoard};
use crate::error::TrainError;
use crate::history::{Event, History};

/// Events that wait for a history that can be written.
const MOST_WAITING_EVENTS: usize = 10_000;

/// The log and the console of the first rank; on the others it keeps silent.
#[derive(Debug)]
pub struct Record(Option<Open>);

#[derive(Debug)]
struct Open {
    log: MetricLog,
    loads: LoadLog,
    tensorboard: Option<TensorBoard>,
    history: History,
    /// Events that could not be written yet, oldest first.
    waiting: Vec<Event>,
    console: Console,
    told: bool,
}

impl Record {
    /// Opens the logs of the run in `out`, and shows progress on `console`.
    ///
    /// # Errors
    /// If a log cannot be opened.
    pub fn open(out: &Path, console: Console, tensorboard: bool) -> Result<Self, TrainError> {
        let (log, history) = (MetricLog::open(out)?, History::open(out)?);
        let tensorboard =
            tensorboard.then(|| TensorBoard::create(out, log.attempt())).transpose()?;
        let (loads, waiting) = (LoadLog::open(out)?, Vec::new());
        Ok(Self(Some(Open { log, loads, tensorboard, history, waiting, console, told: false })))
    }

    /// The record of any other rank.
    pub fn silent() -> Self {
        Self(None)
    }

    /// Logs metrics of the state after `step` updates.
    pub fn write(&mut self, step: u64, metrics: &Metrics) {
        let Some(open) = &mut self.0 else { return };
        let result = open.log.write(step, metrics);
        open.judge(result);
        if let Some(board) = &mut open.tensorboard {
            let result = board.write(step, metrics);
            open.judge(result);
        }
    }

    /// Logs how often experts were chosen.
    pub fn write_loads(&mut self, loads: &Loads) {
        let Some(open) = &mut self.0 else { return };
        let result = open.loads.write(loads);
        open.judge(result);
    }

    /// Which start of the run this is, from 1; 0 on ranks that keep no record.
    pub fn attempt(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.log.attempt())
    }

    /// An event into the history, and its text as a line for people.
    pub fn event(&mut self, event: &Event) {
        self.line(&format!("step {}: {}", event.step, event.text));
        self.quiet_event(event);
    }

    /// An event into the history that people are not told of.
    pub fn quiet_event(&mut self, event: &Event) {
        let Some(open) = &mut self.0 else { return };
        open.waiting.push(event.clone());
        open.write_events();
    }

    /// Makes the system store all that was logged so far, as before a save.
    pub fn flush(&mut self) {
        let Some(open) = &mut self.0 else { return };
        let result = open.log.flush();
        open.judge(result);
        open.write_events();
    }

    /// What could not be written, for the last words; empty if all was.
    pub fn troubles(&self) -> Vec<String> {
        let Some(open) = &self.0 else { return Vec::new() };
        let events = (!open.waiting.is_empty())
            .then(|| format!("{} events are missing from the history", open.waiting.len()));
        let board = open.tensorboard.as_ref().and_then(TensorBoard::troubles);
        [open.log.troubles(), open.loads.troubles(), board, events].into_iter().flatten().collect()
    }

    /// A line for people.
    pub fn line(&self, text: &str) {
        if let Some(open) = &self.0 {
            open.console.line(text);
        }
    }

    /// One step further.
    pub fn step(&self, progress: Progress<'_>) {
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

    /// The console, for others who speak.
    pub fn console(&self) -> Option<&Console> {
        self.0.as_ref().map(|open| &open.console)
    }
}

impl Open {
    fn write_events(&mut self) {
        let mut written = 0;
        let mut result = Ok(());
        for event in &self.waiting {
            result = self.history.append(event);
            if result.is_err() {
                break;
            }
            written += 1;
        }
        self.waiting.drain(..written);
        if self.waiting.len() > MOST_WAITING_EVENTS {
            self.waiting.remove(0);
        }
        self.judge(result);
    }

    /// The first failure is said, the others are counted where they happen.
    fn judge(&mut self, result: Result<(), TrainError>) {
        let Err(error) = result else { return };
        if !self.told {
            self.told = true;
            let rest = "training goes on, what is missing is kept and tried again";
            self.console.line(&format!("{}: {rest}", error.chain()));
        }
    }
}
