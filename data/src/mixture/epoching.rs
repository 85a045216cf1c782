//! Simulated epoching: a short run that repeats its data as often as the full one would.
//!
//! Ten thousandths of a run read ten thousandths of each cell: what is rare and repeated in the full
//! run would be seen once. So a short run sees a part of every cell that is in proportion, and
//! repeats that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CellSize, MixtureConfig};
use crate::{DataError, Result};

/// Tokens of the run that short ones imitate: both phases of the published mixture.
pub const FULL_RUN_TOKENS: u64 = 18_750_000_000_000;

/// Sees of each cell the share that the run has of a full one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedEpoching {
    /// Tokens of the full run.
    #[serde(default = "full_run_tokens")]
    pub full_tokens: u64,
    /// The cell that takes over the weight of those of which not one page is seen; without it they
    /// are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
}

fn full_run_tokens() -> u64 {
    FULL_RUN_TOKENS
}

impl Default for SimulatedEpoching {
    fn default() -> Self {
        Self { full_tokens: FULL_RUN_TOKENS, tail: None }
    }
}

/// What a run sees of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Visible {
    /// Tokens of each cell that are seen, in the order of the cells.
    pub tokens: Vec<u64>,
    /// The mixture, with the weight of `merged` in the tail cell.
    pub mixture: MixtureConfig,
    /// Cells without a page to see, whose weight the tail cell has.
    pub merged: Vec<String>,
}

impl SimulatedEpoching {
    /// What a run of `run_tokens` tokens in pages of `page_len` sees of `cells`.
    ///
    /// # Errors
    /// [`DataError::Mixture`] for a full run without tokens; [`DataError::UnknownCell`] for the tail;
    /// [`DataError::EmptyCells`] naming all cells with weight of which no page is seen, if there is
    /// no tail cell or it is one of them.
    pub fn visible(
        &self,
        cells: &[CellSize],
        mixture: &MixtureConfig,
        page_len: u64,
        run_tokens: u64,
    ) -> Result<Visible> {
        if self.full_tokens == 0 {
            return Err(DataError::Mixture {
                field: "simulated_epoching.full_tokens".to_owned(),
                found: "0".to_owned(),
                needed: "the tokens of the full run".to_owned(),
            });
        }
        let run = u128::from(run_tokens.min(self.full_tokens));
        let seen = |tokens: u64| (u128::from(tokens) * run / u128::from(self.full_tokens)) as u64;
        let tokens: Vec<u64> = cells.iter().map(|cell| seen(cell.tokens)).collect();
        let empty = empty_cells(cells, &tokens, mixture, page_len);
        let Some(tail) = self.tail.as_ref().filter(|_| !empty.is_empty()) else {
            refuse(&empty, page_len, Some(self.share(run_tokens)))?;
            return Ok(Visible { tokens, mixture: mixture.clone(), merged: empty });
        };
        self.require_tail(tail, cells)?;
        if empty.contains(tail) {
            refuse(&empty, page_len, Some(self.share(run_tokens)))?;
        }
        let mut mixture = mixture.clone();
        for stage in &mut mixture.stages {
            merge(&mut stage.weights, &empty, tail);
        }
        Ok(Visible { tokens, mixture, merged: empty })
    }

    /// The share of each cell that a run sees.
    pub fn share(&self, run_tokens: u64) -> f64 {
        (run_tokens as f64 / self.full_tokens as f64).min(1.0)
    }

    fn require_tail(&self, tail: &str, cells: &[CellSize]) -> Result<()> {
        if cells.iter().any(|cell| cell.name == tail) {
            return Ok(());
        }
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        Err(DataError::Mixture {
            field: "simulated_epoching.tail".to_owned(),
            found: tail.to_owned(),
            needed: format!("one of {}", names.join(", ")),
        })
    }
}

/// Names of the cells with weight of which `tokens` hold not one page.
pub(super) fn empty_cells(
    cells: &[CellSize],
    tokens: &[u64],
    mixture: &MixtureConfig,
    page_len: u64,
) -> Vec<String> {
    let weighted = |name: &str| {
        mixture.stages.iter().any(|stage| stage.weights.get(name).is_some_and(|w| *w > 0.0))
    };
    let small = cells.iter().zip(tokens).filter(|(_, tokens)| **tokens < page_len);
    small.map(|(cell, _)| cell.name.clone()).filter(|name| weighted(name)).collect()
}

/// Refuses cells without a page, if there are any.
pub(super) fn refuse(empty: &[String], page_len: u64, share: Option<f64>) -> Result<()> {
    if empty.is_empty() {
        return Ok(());
    }
    Err(DataError::EmptyCells { cells: empty.to_vec(), page_len, share: share.unwrap_or(1.0) })
}

fn merge(weights: &mut BTreeMap<String, f64>, empty: &[String], tail: &str) {
    let merged: f64 = empty.iter().filter_map(|name| weights.remove(name)).sum();
    if merged > 0.0 {
        *weights.entry(tail.to_owned()).or_default() += merged;
    }
}
