//! Loads of experts: `loads.jsonl` in a run's folder, a line an evaluation.
//!
//! The metric log has what a run is steered by (entropy, balance, drops); which expert of which layer
//! was chosen how often is too much for a line a step.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::outbox::Outbox;
use crate::error::TrainError;
use crate::json_lines;
use crate::layer_report::LayerReport;

/// Name of the file in a run's folder.
pub const LOADS_FILE: &str = "loads.jsonl";

/// How often each expert was chosen over some updates, over all ranks and before anything was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loads {
    /// Completed updates after the last of them.
    pub step: u64,
    /// Which start of the run, from 1.
    pub attempt: u64,
    /// How many updates there are.
    pub updates: u64,
    /// Assignments `[layer][expert]`.
    pub counts: Vec<Vec<u64>>,
}

impl Loads {
    /// Adds an update.
    pub fn add(&mut self, layers: &[LayerReport]) {
        self.updates += 1;
        self.counts.resize(layers.len(), Vec::new());
        for (sums, layer) in self.counts.iter_mut().zip(layers) {
            let counts = &layer.routing.expert_counts;
            sums.resize(counts.len(), 0);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    /// The loads that every line of the run in `folder` has, in the order they were written; none without
    /// a file. Lines that a kill cut short are passed over.
    ///
    /// # Errors
    /// If the file cannot be read, or a whole line is something else.
    pub fn read(folder: &Path) -> Result<Vec<Self>, TrainError> {
        json_lines::read_all(&folder.join(LOADS_FILE), "loads")
    }
}

/// Appends loads; lines of earlier attempts stay.
#[derive(Debug)]
pub(super) struct LoadLog {
    path: PathBuf,
    outbox: Outbox<File>,
}

impl LoadLog {
    /// Opens the file of the run in `folder`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LOADS_FILE);
        let outbox = Outbox::new(json_lines::append_to(&path)?);
        Ok(Self { path, outbox })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If the file cannot be written; the line is kept and written with the next one.
    pub(super) fn write(&mut self, loads: &Loads) -> Result<(), TrainError> {
        let mut text = serde_json::to_string(loads).expect("plain values");
        text.push('\n');
        self.outbox.push(text.into_bytes()).map_err(TrainError::io("write", &self.path))
    }

    /// What went wrong so far, for people; none if nothing did.
    pub(super) fn troubles(&self) -> Option<String> {
        self.outbox.troubles(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_one_cut_short_costs_no_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path();
        assert_eq!(Loads::read(folder).expect("none"), []);
        let loads = Loads { step: 5, attempt: 1, updates: 5, counts: vec![vec![3, 0], vec![1, 2]] };
        LoadLog::open(folder).and_then(|mut log| log.write(&loads)).expect("written");
        let path = folder.join(LOADS_FILE);
        let text = std::fs::read_to_string(&path).expect("read");
        std::fs::write(&path, text + "{\"step\":10,\"att").expect("written");
        let next = Loads { attempt: 2, ..loads.clone() };
        LoadLog::open(folder).and_then(|mut log| log.write(&next)).expect("written");
        assert_eq!(Loads::read(folder).expect("two"), [loads, next]);
    }
}
