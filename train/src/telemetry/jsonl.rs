//! `metrics.jsonl` in the run's folder: one flat object a line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::{Metrics, names};
use crate::error::TrainError;

/// Name of the log in a run's folder.
pub const LOG_FILE: &str = "metrics.jsonl";

/// Appends metrics; lines of earlier attempts stay.
#[derive(Debug)]
pub struct MetricLog {
    path: PathBuf,
    file: BufWriter<File>,
    attempt: u64,
}

impl MetricLog {
    /// Opens the log of the run in `folder`, as the attempt after the last one in it.
    ///
    /// # Errors
    /// If the file cannot be read or opened.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LOG_FILE);
        let attempt = if path.exists() { last_attempt(&path)? + 1 } else { 1 };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = BufWriter::new(file.map_err(TrainError::io("open", &path))?);
        Ok(Self { path, file, attempt })
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
    /// If the file cannot be written.
    pub fn write(&mut self, step: u64, metrics: &Metrics) -> Result<(), TrainError> {
        let mut line = Metrics::new();
        line.insert(names::STEP.to_owned(), step.into());
        line.insert(names::ATTEMPT.to_owned(), self.attempt.into());
        line.extend(metrics.clone());
        let text = serde_json::Value::Object(line).to_string();
        let written = writeln!(self.file, "{text}").and_then(|()| self.file.flush());
        written.map_err(TrainError::io("write", &self.path))
    }
}

/// Lines cut short by a kill hold no attempt and are passed over.
fn last_attempt(path: &Path) -> Result<u64, TrainError> {
    let file = File::open(path).map_err(TrainError::io("read", path))?;
    let mut last = 0;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(TrainError::io("read", path))?;
        if let Ok(metrics) = serde_json::from_str::<Metrics>(&line) {
            last = last.max(metrics.get(names::ATTEMPT).and_then(|a| a.as_u64()).unwrap_or(0));
        }
    }
    Ok(last)
}
