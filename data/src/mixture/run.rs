//! All that a mixture's plan follows from, without data.

use super::{
    CellSize, MixtureConfig, MixturePlan, MixtureReport, SimulatedEpoching, Visible,
    epoching::{empty_cells, refuse},
};
use crate::{BatchPlan, Result, RowLengths};

/// How often a cell may be read over a run unless a setting says otherwise (SPEC section 5).
pub const DEFAULT_MAX_EPOCHS: f64 = 8.0;

/// A mixture over cells of known size, and the run that reads it.
///
/// Only names and sizes of the cells are needed: a run can be planned before its store exists.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureRun {
    /// The cells, in the order of the store.
    pub cells: Vec<CellSize>,
    /// Their weights.
    pub mixture: MixtureConfig,
    /// Tokens of the rows.
    pub lengths: RowLengths,
    /// Tokens of a step.
    pub tokens_per_step: u64,
    /// Steps of the run.
    pub steps: u64,
    /// Seed of the run; only counts inside a block depend on it.
    pub seed: u64,
    /// Whether the run sees its cells as a part of a longer one.
    pub epoching: Option<SimulatedEpoching>,
    /// Tokens of the run that `epoching` takes the share of; those of all steps when absent. A run
    /// whose horizon moves goes on with the cells that it began with.
    pub epoching_tokens: Option<u64>,
    /// How often a cell may be read.
    pub max_epochs: f64,
}

impl MixtureRun {
    /// Tokens of the run.
    pub fn tokens(&self) -> u64 {
        self.tokens_per_step.saturating_mul(self.steps)
    }

    /// What the run sees of its cells, and the mixture with which it reads them.
    ///
    /// # Errors
    /// Those of [`MixtureConfig::validate`] and [`SimulatedEpoching::visible`];
    /// [`DataError::UnknownCell`](crate::DataError::UnknownCell);
    /// [`DataError::EmptyCells`](crate::DataError::EmptyCells) naming all cells with weight and
    /// without a page.
    pub fn visible(&self) -> Result<Visible> {
        self.mixture.validate()?;
        self.mixture.dense_weights(&self.cell_names())?;
        let page_len = self.lengths.longest as u64;
        let (cells, mixture) = (&self.cells, &self.mixture);
        if let Some(epoching) = &self.epoching {
            let tokens = self.epoching_tokens.unwrap_or(self.tokens());
            return epoching.visible(cells, mixture, page_len, tokens);
        }
        let tokens: Vec<u64> = cells.iter().map(|cell| cell.tokens).collect();
        refuse(&empty_cells(cells, &tokens, mixture, page_len), page_len, None)?;
        Ok(Visible { tokens, mixture: mixture.clone(), merged: Vec::new() })
    }

    /// Which cell each row comes from.
    ///
    /// # Errors
    /// Those of [`MixtureRun::visible`] and [`MixturePlan::new`].
    pub fn plan(&self) -> Result<MixturePlan> {
        let visible = self.visible()?;
        MixturePlan::new(&visible.mixture, &self.lengths, &self.cell_names(), self.seed)
    }

    /// Which rows a step has.
    ///
    /// # Errors
    /// Those of [`RowLengths::plan`] and [`LengthPlan::batches`](crate::LengthPlan::batches).
    pub fn batches(&self) -> Result<BatchPlan> {
        self.lengths.plan(self.mixture.block_rows)?.batches(self.tokens_per_step)
    }

    /// The first block of which no row was read after `step` steps: a stage may begin there.
    ///
    /// # Errors
    /// Those of [`MixtureRun::batches`].
    pub fn next_block(&self, step: u64) -> Result<u64> {
        let lengths = self.lengths.plan(self.mixture.block_rows)?;
        let (block, rows) = lengths.block_of_row(self.batches()?.rows(step).start);
        Ok(block + u64::from(rows > 0))
    }

    /// What the run amounts to by cell, seen from step `now`; the cap on epochs is not enforced, see
    /// [`MixtureReport::require_epochs`].
    ///
    /// # Errors
    /// Those of [`MixtureRun::plan`] and [`MixtureRun::batches`].
    pub fn report(&self, now: u64) -> Result<MixtureReport> {
        MixtureReport::new(self, now)
    }

    /// The names of the cells, in order.
    pub fn cell_names(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.name.clone()).collect()
    }
}
