//! `metrics.jsonl` in the run's folder: one flat object a line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::outbox::Outbox;
use super::{Metrics, names};
use crate::error::TrainError;

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
    /// Opens the log of the run in `folder`, as the attempt after the last one in it.
    ///
    /// # Errors
    /// If the file cannot be read or opened.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LOG_FILE);
        let attempt = if path.exists() { last_attempt(&path)? + 1 } else { 1 };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let outbox = Outbox::new(file.map_err(TrainError::io("open", &path))?);
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

/// Every line of the log in `folder` that is whole, in the order they were written, and the number
/// of those that are not: a kill cuts a line short.
///
/// # Errors
/// If the file cannot be read.
pub fn read(folder: &Path) -> Result<(Vec<Metrics>, u64), TrainError> {
    let path = folder.join(LOG_FILE);
    if !path.exists() {
        return Ok((Vec::new(), 0));
    }
    let file = File::open(&path).map_err(TrainError::io("read", &path))?;
    let (mut lines, mut cut_short) = (Vec::new(), 0);
    for line in BufReader::new(file).lines() {
        let line = line.map_err(TrainError::io("read", &path))?;
        match serde_json::from_str(&line) {
            Ok(metrics) => lines.push(metrics),
            Err(_) => cut_short += 1,
        }
    }
    Ok((lines, cut_short))
}

fn last_attempt(path: &Path) -> Result<u64, TrainError> {
    let (lines, _) = read(path.parent().expect("a file in a folder"))?;
    let attempts = lines.iter().filter_map(|line| line.get(names::ATTEMPT)?.as_u64());
    Ok(attempts.max().unwrap_or(0))
}
