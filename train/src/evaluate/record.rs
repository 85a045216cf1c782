//! Evaluations that a run keeps.

use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Evaluation;
use crate::checkpoint::MANIFEST;
use crate::error::TrainError;
use crate::json_lines;

/// Name of the recorded evaluations in a run's folder.
pub const EVALUATIONS_FILE: &str = "evaluations.jsonl";

/// Appends an evaluation to the record of the run in `folder`, a line of JSON.
///
/// # Errors
/// If the folder is no run's, or the file cannot be written.
pub fn record(folder: &Path, evaluation: &Evaluation) -> Result<(), TrainError> {
    if evaluation.step.is_none() || folder.join(MANIFEST).exists() {
        let found = format!("given for {}", folder.display());
        return Err(TrainError::config("--record", found, "a run, whose folder takes the record"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut metrics = evaluation.metrics();
    metrics.insert("unix_secs".to_owned(), now.into());
    let line = serde_json::to_string(&metrics).expect("plain values") + "\n";
    let path = folder.join(EVALUATIONS_FILE);
    let mut file = json_lines::append_to(&path)?;
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
    written.map_err(TrainError::io("write", &path))
}
