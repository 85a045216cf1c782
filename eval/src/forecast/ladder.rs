//! The table of a ladder.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ForecastError, Rung};

/// A ladder: losses of some runs, and the FLOPs of these and of those to be forecast.
///
/// As JSON it is the table that the published grid has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// What the losses are.
    pub metric: String,
    /// Where they are from.
    pub source: String,
    /// FLOPs of whole runs by name, without the output head.
    pub flops_without_head: BTreeMap<String, f64>,
    /// Losses at 5%, 10%, ... by name.
    pub values: BTreeMap<String, Vec<f64>>,
}

impl Ladder {
    /// The public record of the ladder d768 to d2048, whose largest rung stopped at 80%.
    ///
    /// # Errors
    /// None with an unaltered crate.
    pub fn published() -> Result<Self, ForecastError> {
        Self::parse(include_str!("../../ladder/grid.json"), "the published ladder")
    }

    /// The table in a file.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ForecastError> {
        let origin = path.as_ref().display().to_string();
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &origin),
            Err(source) => Err(ForecastError::Read { origin, source }),
        }
    }

    fn parse(text: &str, origin: &str) -> Result<Self, ForecastError> {
        serde_json::from_str(text)
            .map_err(|source| ForecastError::Table { origin: origin.to_owned(), source })
    }

    /// FLOPs of a run, without the output head.
    ///
    /// # Errors
    /// If the table has none of that name.
    pub fn flops(&self, run: &str) -> Result<f64, ForecastError> {
        self.flops_without_head.get(run).copied().ok_or_else(|| {
            let known: Vec<&str> = self.flops_without_head.keys().map(String::as_str).collect();
            ForecastError::UnknownTarget { target: run.to_owned(), known: known.join(", ") }
        })
    }

    /// The runs that have losses, by what they spend.
    ///
    /// # Errors
    /// If the FLOPs of one are not known.
    pub fn rungs(&self) -> Result<Vec<Rung>, ForecastError> {
        let rung = |(name, losses): (&String, &Vec<f64>)| {
            Ok(Rung { name: name.clone(), flops: self.flops(name)?, losses: losses.clone() })
        };
        let mut rungs = self.values.iter().map(rung).collect::<Result<Vec<_>, ForecastError>>()?;
        rungs.sort_by(|a, b| a.flops.total_cmp(&b.flops));
        Ok(rungs)
    }
}
