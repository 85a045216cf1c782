//! `metrics.jsonl` in the run's folder: one flat object a line.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::outbox::Outbox;
use super::{Metrics, names};
use crate::error::TrainError;
use crate::history::History;
use crate::json_lines;

/// Name of the log in a run's folder.
pub const LOG_FILE: &str = "metrics.jsonl";

/// Appends metrics; lines of earlier attempts stay.
#[derive(Debug)]
pub struct MetricLog {
    path: PathBuf,
    outbox: Outbox<File>,
    attempt: u64,
}

impl MetricLog {
    /// Opens the log of the run in `folder`, as the attempt after the last one that left a line in it
    /// or in the run's history.
    ///
    /// # Errors
    /// If a file cannot be read or opened.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LOG_FILE);
        let attempt = last_attempt(folder, &path)? + 1;
        let outbox = Outbox::new(json_lines::append_to(&path)?);
        Ok(Self { path, outbox, attempt })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which start of the run writes, from 1.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Writes one line for the state after `step` updates, and hands it to the system.
    ///
    /// # Errors
    /// If the file cannot be written; the line is kept and written with the next one.
    pub fn write(&mut self, step: u64, metrics: &Metrics) -> Result<(), TrainError> {
        let mut line = Metrics::new();
        line.insert(names::STEP.to_owned(), step.into());
        line.insert(names::ATTEMPT.to_owned(), self.attempt.into());
        line.extend(metrics.clone());
        let mut text = serde_json::Value::Object(line).to_string();
        text.push('\n');
        self.outbox.push(text.into_bytes()).map_err(TrainError::io("write", &self.path))
    }

    /// Writes what is kept, and makes the system store all of it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), TrainError> {
        let written = self.outbox.write().and_then(|()| self.outbox.file().sync_data());
        written.map_err(TrainError::io("write", &self.path))
    }

    /// What went wrong so far, for people; none if nothing did.
    pub fn troubles(&self) -> Option<String> {
        self.outbox.troubles(&self.path)
    }
}

/// Hands every line of the log in `folder` that is whole to `each`, in the order they were written, and
/// returns the number of those that are not: a kill cuts a line short. One line is held at a time.
///
/// # Errors
/// If the file cannot be read.
pub fn each(folder: &Path, mut each: impl FnMut(Metrics)) -> Result<u64, TrainError> {
    let mut cut_short = 0;
    json_lines::each_line(&folder.join(LOG_FILE), |_, line| {
        serde_json::from_slice(line).map_or_else(|_| cut_short += 1, &mut each);
        Ok(())
    })?;
    Ok(cut_short)
}

/// Every line at once, and the number of those that are not whole; of short runs.
///
/// # Errors
/// As [`each`].
pub fn read(folder: &Path) -> Result<(Vec<Metrics>, u64), TrainError> {
    let mut lines = Vec::new();
    let cut_short = each(folder, |line| lines.push(line))?;
    Ok((lines, cut_short))
}

/// The last attempt that left a line in the log or the history: one that was killed in its first step
/// left none in the log.
fn last_attempt(folder: &Path, log: &Path) -> Result<u64, TrainError> {
    #[derive(Deserialize)]
    struct Line {
        attempt: u64,
    }
    let mut last = History::read(folder)?.iter().map(|event| event.attempt).max().unwrap_or(0);
    json_lines::each_line(log, |_, line| {
        let attempt = serde_json::from_slice(line).map(|Line { attempt }| attempt);
        last = last.max(attempt.unwrap_or(0));
        Ok(())
    })?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Event;

    #[test]
    fn a_line_cut_short_costs_the_next_attempt_none_of_its_own() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path();
        MetricLog::open(folder).and_then(|mut log| log.write(1, &Metrics::new())).expect("written");
        let path = folder.join(LOG_FILE);
        let text = std::fs::read_to_string(&path).expect("read");
        std::fs::write(&path, text + "{\"step\":2,\"att").expect("written");
        MetricLog::open(folder).and_then(|mut log| log.write(2, &Metrics::new())).expect("written");
        let (lines, cut_short) = read(folder).expect("read");
        let of =
            |line: &Metrics| [&line["step"], &line["attempt"]].map(|v| v.as_u64().expect("u64"));
        assert_eq!(
            (lines.iter().map(of).collect::<Vec<_>>(), cut_short),
            (vec![[1, 1], [2, 2]], 1)
        );
    }

    #[test]
    fn an_attempt_that_only_left_an_event_has_its_own_number() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let event = Event::now(0, 1, "started", "");
        History::open(folder.path()).and_then(|mut h| h.append(&event)).expect("written");
        assert_eq!(MetricLog::open(folder.path()).expect("opened").attempt(), 2);
    }
}
