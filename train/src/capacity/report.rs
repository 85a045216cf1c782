//! What is answered.

use serde::Serialize;

use super::compare::Comparison;
use super::fit::Fit;
use super::settings::{Drawn, Exchange};
use super::sweep::Line;

/// A capacity plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was asked.
    pub exchange: Exchange,
    /// Where choices came from, and what they led to.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Choices, and what became of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub enum Origin {
    /// Drawn from documents.
    Drawn {
        /// From which documents.
        settings: Drawn,
        /// Their concentration.
        concentration: f64,
        /// How it was found, where it was not given.
        fit: Option<Fit>,
        /// One block a row length.
        blocks: Vec<Block>,
        /// The public record; empty in other settings than the published run's.
        record: Vec<Comparison>,
    },
    /// Read from a file.
    Recorded {
        /// The file.
        file: String,
        /// Its layers, over which counts are summed.
        layers: usize,
        /// One line a rule and factor.
        lines: Vec<Line>,
    },
}

/// All rules at one row length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    /// Tokens of a row.
    pub row_tokens: usize,
    /// Documents of the batch.
    pub documents: usize,
    /// One line a rule and factor.
    pub lines: Vec<Line>,
}

impl Report {
    /// The plan as JSON.
    ///
    /// # Panics
    /// Never: the plan holds plain values only.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values")
    }
}
