//! Global row index → cell and position within the cell.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use super::{MixtureConfig, block::Quotas, stage::StagePlan};
use crate::{
    DataError, Result,
    shuffle::{Permutation, derive_seed},
};

/// Blocks kept at hand: a batch touches one or two, a second reader may be elsewhere.
const RECENT_BLOCKS: usize = 8;

/// Separates the orders of blocks from other uses of the run's seed.
const BLOCK_ORDER: u64 = 0x626c_6f63_6b00_0000;

/// What row index i is: row `index` of the rows ever taken from `cell`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the cell, in the order given to [`MixturePlan::new`].
    pub cell: u32,
    /// Rows of this cell dealt before this one, over all stages and epochs.
    pub index: u64,
}

/// Deals rows to cells: a pure function of mixture, seed and row index.
///
/// Needs no data, only the names of the cells, so that a run can be planned before its store
/// exists. Memory and time per lookup do not grow with the row index.
///
/// Each stage starts its count anew: at a change of weights a cell is off by less than one row.
#[derive(Debug)]
pub struct MixturePlan {
    block_rows: u64,
    seed: u64,
    num_cells: usize,
    stages: Vec<StageStart>,
    recent: Mutex<VecDeque<(u64, Arc<BlockPlan>)>>,
}

#[derive(Debug)]
struct StageStart {
    from_block: u64,
    /// Rows of each cell dealt in earlier stages.
    rows_before: Vec<u64>,
    plan: StagePlan,
}

#[derive(Debug)]
struct BlockPlan {
    /// Rows of each cell dealt before this block.
    rows_before: Vec<u64>,
    /// Position in the unpermuted block behind each cell's rows; cells lie one after another.
    ends: Vec<u64>,
    order: Permutation,
}

impl MixturePlan {
    /// Plans a mixture over named cells.
    ///
    /// # Errors
    /// Those of [`MixtureConfig::validate`]; [`DataError::UnknownCell`];
    /// [`DataError::Mixture`] for a weight too small to get one row in
    /// [`super::PERIOD_BLOCKS`] blocks.
    pub fn new(config: &MixtureConfig, cells: &[String], seed: u64) -> Result<Self> {
        config.validate()?;
        let mut stages: Vec<StageStart> = Vec::new();
        let dense = config.dense_weights(cells)?;
        for (index, (stage, weights)) in config.stages.iter().zip(dense).enumerate() {
            let quotas = Quotas::new(&weights, config.block_rows);
            let lost = (0..cells.len()).find(|&c| weights[c] > 0.0 && quotas.units[c] == 0);
            if let Some(cell) = lost {
                return Err(DataError::Mixture {
                    field: format!("stages[{index}].weights.{}", cells[cell]),
                    found: weights[cell].to_string(),
                    needed: format!("0, or one row in {} blocks", super::PERIOD_BLOCKS),
                });
            }
            let rows_before = match stages.last() {
                None => vec![0; cells.len()],
                Some(last) => last.rows_around(stage.from_block).0,
            };
            let plan = StagePlan::new(quotas);
            stages.push(StageStart { from_block: stage.from_block, rows_before, plan });
        }
        let (block_rows, num_cells) = (config.block_rows, cells.len());
        Ok(Self { block_rows, seed, num_cells, stages, recent: Mutex::default() })
    }

    /// The cell of a row and the row's place in it.
    pub fn locate(&self, row: u64) -> Slot {
        self.block(row / self.block_rows).slot(row % self.block_rows)
    }

    /// Index of the stage that deals a row.
    pub fn stage_of(&self, row: u64) -> usize {
        let block = row / self.block_rows;
        self.stages.partition_point(|stage| stage.from_block <= block) - 1
    }

    /// Rows of each cell among the first `num_rows` rows.
    ///
    /// Time is that of at most one block.
    pub fn consumed(&self, num_rows: u64) -> Vec<u64> {
        let block = self.block(num_rows / self.block_rows);
        let mut rows = block.rows_before.clone();
        for position in 0..num_rows % self.block_rows {
            rows[block.slot(position).cell as usize] += 1;
        }
        rows
    }

    /// Rows of each cell in one block.
    pub fn block_counts(&self, block: u64) -> Vec<u64> {
        let ends = &self.block(block).ends;
        (0..ends.len()).map(|c| ends[c] - if c == 0 { 0 } else { ends[c - 1] }).collect()
    }

    /// Rows of a block.
    pub fn block_rows(&self) -> u64 {
        self.block_rows
    }

    /// Number of cells, weighted or not.
    pub fn num_cells(&self) -> usize {
        self.num_cells
    }

    fn block(&self, block: u64) -> Arc<BlockPlan> {
        {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, plan)) = recent.iter().find(|(index, _)| *index == block) {
                return Arc::clone(plan);
            }
        }
        let plan = Arc::new(self.plan_block(block));
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(RECENT_BLOCKS - 1);
        recent.push_front((block, Arc::clone(&plan)));
        plan
    }

    fn plan_block(&self, block: u64) -> BlockPlan {
        let stage = &self.stages[self.stage_of(block * self.block_rows)];
        let (rows_before, rows_after) = stage.rows_around(block);
        let mut end = 0;
        let counts = rows_after.iter().zip(&rows_before).map(|(after, before)| after - before);
        let ends = counts
            .map(|count| {
                end += count;
                end
            })
            .collect();
        let order =
            Permutation::new(self.block_rows, derive_seed(self.seed, &[BLOCK_ORDER, block]));
        BlockPlan { rows_before, ends, order }
    }
}

impl StageStart {
    /// Rows of each cell before a block of this stage, and behind it.
    fn rows_around(&self, block: u64) -> (Vec<u64>, Vec<u64>) {
        let (mut before, mut after) = self.plan.given_around(block - self.from_block);
        for (cell, earlier) in self.rows_before.iter().enumerate() {
            before[cell] += earlier;
            after[cell] += earlier;
        }
        (before, after)
    }
}

impl BlockPlan {
    fn slot(&self, position: u64) -> Slot {
        let place = self.order.apply(position);
        let cell = self.ends.partition_point(|&end| end <= place);
        let start = if cell == 0 { 0 } else { self.ends[cell - 1] };
        Slot { cell: cell as u32, index: self.rows_before[cell] + place - start }
    }
}
