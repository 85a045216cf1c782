//! What happened to a run besides its steps: `history.jsonl` in its folder, one event a line.
//!
//! Appended to and never rewritten. An event says when in the run, in which attempt, what, why, and
//! what was before and after, so that `train explain` can tell what was in force at any step.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::json_lines;
use crate::telemetry::Metrics;

/// Name of the history in a run's folder.
pub const HISTORY_FILE: &str = "history.jsonl";

/// What the start of an attempt is called.
pub const STARTED: &str = "started";
/// What the end of an attempt is called that came to its last step; one that was stopped or killed has
/// none.
pub const ENDED: &str = "ended";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Completed updates when it happened.
    pub step: u64,
    /// Which start of the run, from 1; 0 of what happened between two.
    pub attempt: u64,
    /// Seconds since 1970 by the clock of the first rank; for people, nothing is computed from it.
    pub unix_secs: u64,
    /// What kind of event, such as `started`, `save_failed` or `replanned`.
    pub what: String,
    /// For people: the reason, or the line that was shown.
    pub text: String,
    /// Whatever else belongs to the kind.
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    pub detail: Metrics,
}

impl Event {
    /// An event that happens now.
    pub fn now(step: u64, attempt: u64, what: &str, text: impl Into<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_secs = since.map_or(0, |since| since.as_secs());
        let (what, text) = (what.to_owned(), text.into());
        Self { step, attempt, unix_secs, what, text, detail: Metrics::new() }
    }

    /// The event with one more field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<serde_json::Value>) -> Self {
        self.detail.insert(field.to_owned(), value.into());
        self
    }
}

/// Appends to the history of a run.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: File,
    /// Whether a line may have been cut short.
    broken: bool,
}

impl History {
    /// Opens the history of the run in `folder`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(HISTORY_FILE);
        let file = json_lines::append_to(&path)?;
        Ok(Self { path, file, broken: false })
    }

    /// Appends an event, durably.
    ///
    /// # Errors
    /// If it cannot be written; it can be tried again.
    pub fn append(&mut self, event: &Event) -> Result<(), TrainError> {
        let mut line = serde_json::to_string(event).expect("plain values");
        line.push('\n');
        if self.broken {
            line.insert(0, '\n');
        }
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        self.broken = written.is_err();
        written.map_err(TrainError::io("write", &self.path))
    }

    /// Every event of the run in `folder`, in the order they were written; none without a file. A
    /// last line cut short by a kill is passed over.
    ///
    /// # Errors
    /// If the file cannot be read, or a line that was written whole is no event.
    pub fn read(folder: &Path) -> Result<Vec<Event>, TrainError> {
        json_lines::read_all(&folder.join(HISTORY_FILE), "event")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_a_line_that_was_cut_short() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let first = Event::now(3, 1, "saved", "by the interval").with("bytes", 7);
        History::open(folder.path()).and_then(|mut h| h.append(&first)).expect("written");
        let path = folder.path().join(HISTORY_FILE);
        let mut text = std::fs::read_to_string(&path).expect("read");
        text += "{\"step\":4,\"att";
        std::fs::write(&path, text).expect("written");
        let second = Event::now(5, 2, "started", "resumed");
        History::open(folder.path()).and_then(|mut h| h.append(&second)).expect("written");
        assert_eq!(History::read(folder.path()).expect("read"), [first, second]);
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(HISTORY_FILE), "{\"stop\":4}\n").expect("written");
        let error = History::read(folder.path()).expect_err("no event").to_string();
        assert!(error.contains("history.jsonl, line 1") && error.contains("stop"), "{error}");
    }
}
