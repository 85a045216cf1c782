//! The mixture as a user writes it: weights per cell, in stages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DataError, Result, Store};

/// Rows of a block in the published recipe; also four rows of a cell of weight 1e-4.
pub const DEFAULT_BLOCK_ROWS: u64 = 49_152;

/// Largest block, so that counts of a whole period stay in 64 bits with room to multiply.
pub(crate) const MAX_BLOCK_ROWS: u64 = 1 << 30;

/// How far weights may be from a sum of 1; they are divided by their sum.
const SUM_TOLERANCE: f64 = 1e-6;

/// Weights of the cells over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureConfig {
    /// Rows within which counts are exact; 1 to 2^30, default [`DEFAULT_BLOCK_ROWS`]. Where rows
    /// change their length, rows of the first one: a block keeps its tokens.
    #[serde(default = "default_block_rows")]
    pub block_rows: u64,
    /// What holds from which block on. Append-only in a run: earlier stages say what was read.
    pub stages: Vec<Stage>,
}

/// Weights that hold from one block on, until the next stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// First block, counted from the start of the run; 0 in the first stage, then ascending.
    pub from_block: u64,
    /// Share of the rows by cell name; not negative, sum 1. A cell that is not named gets none.
    pub weights: BTreeMap<String, f64>,
}

fn default_block_rows() -> u64 {
    DEFAULT_BLOCK_ROWS
}

impl MixtureConfig {
    /// One stage in which every cell has the share of its tokens, so that cells end together.
    ///
    /// A cell of fewer tokens than the longest planned row has no page to give and gets weight 0,
    /// with a warning.
    pub fn proportional(store: &Store, longest_row: usize, block_rows: u64) -> Self {
        let tokens_of = |cell: &crate::Cell| {
            let tokens = cell.num_tokens();
            if tokens < longest_row as u64 {
                tracing::warn!(cell = cell.name(), tokens, longest_row, "cell without a whole row");
                return 0.0;
            }
            tokens as f64
        };
        let tokens: Vec<f64> = store.cells().iter().map(tokens_of).collect();
        let total: f64 = tokens.iter().sum::<f64>().max(1.0);
        let names = store.cells().iter().map(|cell| cell.name().to_owned());
        let weights = names.zip(tokens.iter().map(|tokens| tokens / total)).collect();
        Self { block_rows, stages: vec![Stage { from_block: 0, weights }] }
    }

    /// Checks the numbers alone, without a store.
    ///
    /// # Errors
    /// [`DataError::Mixture`] naming the field, its value and the rule.
    pub fn validate(&self) -> Result<()> {
        require_block_rows(self.block_rows)?;
        require(!self.stages.is_empty(), || "stages".to_owned(), "empty", "at least one stage")?;
        let mut lower_bound = 0;
        for (index, stage) in self.stages.iter().enumerate() {
            let in_order =
                if index == 0 { stage.from_block == 0 } else { stage.from_block >= lower_bound };
            let rule = match index {
                0 => "0 in the first stage".to_owned(),
                _ => format!("{lower_bound} or more, after the stage before"),
            };
            let field = || format!("stages[{index}].from_block");
            require(in_order, field, stage.from_block, rule)?;
            lower_bound = stage.from_block.saturating_add(1);
            stage.validate(index)?;
        }
        Ok(())
    }

    /// The stage that a block belongs to.
    ///
    /// # Panics
    /// If the config was not validated.
    pub(crate) fn stage_at(&self, block: u64) -> &Stage {
        &self.stages[self.stages.partition_point(|stage| stage.from_block <= block) - 1]
    }

    /// The weights of every stage in the order of `cells`.
    ///
    /// # Errors
    /// [`DataError::UnknownCell`] for a name that is not among `cells`.
    pub(crate) fn dense_weights(&self, cells: &[String]) -> Result<Vec<Vec<f64>>> {
        let dense = |(index, stage): (usize, &Stage)| {
            if let Some(name) = stage.weights.keys().find(|name| !cells.contains(name)) {
                let near = cells.iter().find(|cell| cell.eq_ignore_ascii_case(name));
                let hint = match near {
                    Some(cell) => format!("did you mean `{cell}`?"),
                    None => format!("it has {}", cells.join(", ")),
                };
                return Err(DataError::UnknownCell { stage: index, cell: name.clone(), hint });
            }
            let weight = |cell| stage.weights.get(cell).copied().unwrap_or(0.0);
            Ok(cells.iter().map(weight).collect())
        };
        self.stages.iter().enumerate().map(dense).collect()
    }
}

impl Stage {
    fn validate(&self, index: usize) -> Result<()> {
        for (name, &weight) in &self.weights {
            let field = || format!("stages[{index}].weights.{name}");
            require(
                weight.is_finite() && weight >= 0.0,
                field,
                weight,
                "a finite number, 0 or more",
            )?;
        }
        let sum = self.weights.values().fold(0.0, |sum, weight| sum + weight);
        require(
            (sum - 1.0).abs() <= SUM_TOLERANCE,
            || format!("stages[{index}].weights"),
            format!("a set with sum {sum}"),
            format!("a sum of 1 within {SUM_TOLERANCE}"),
        )
    }
}

/// Checks the rows of a block.
pub(crate) fn require_block_rows(block_rows: u64) -> Result<()> {
    require(
        (1..=MAX_BLOCK_ROWS).contains(&block_rows),
        || "block_rows".to_owned(),
        block_rows,
        format!("1 to {MAX_BLOCK_ROWS}"),
    )
}

fn require(
    holds: bool,
    field: impl FnOnce() -> String,
    found: impl ToString,
    needed: impl Into<String>,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(DataError::Mixture { field: field(), found: found.to_string(), needed: needed.into() })
}
