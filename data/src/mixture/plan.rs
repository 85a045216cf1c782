//! Global row index → cell and position within the cell.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use super::{MixtureConfig, block::Quotas, stage::StagePlan};
use crate::{
    DataError, LengthPlan, Result, RowLengths,
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
    /// Rows of this cell dealt before this one, over all stages, row lengths and epochs.
    pub index: u64,
}

/// Deals rows to cells: a pure function of mixture, row lengths, seed and row index.
///
/// Needs no data, only the names of the cells, so that a run can be planned before its store
/// exists. Memory and time per lookup do not grow with the row index.
///
/// Each stage starts its count anew, and so does each row length: at a change a cell is off by less
/// than one row.
#[derive(Debug)]
pub struct MixturePlan {
    lengths: LengthPlan,
    seed: u64,
    num_cells: usize,
    spans: Vec<Span>,
    recent: Mutex<VecDeque<(u64, Arc<BlockPlan>)>>,
}

/// Blocks of the same weights and the same row length.
#[derive(Debug)]
struct Span {
    from_block: u64,
    /// Index of the mixture's stage.
    stage: usize,
    /// Rows of each cell dealt in earlier spans.
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
    /// Those of [`MixtureConfig::validate`] and [`RowLengths::plan`]; [`DataError::UnknownCell`];
    /// [`DataError::Mixture`] for a weight too small to get one row in
    /// [`super::PERIOD_BLOCKS`] blocks.
    pub fn new(
        config: &MixtureConfig,
        lengths: &RowLengths,
        cells: &[String],
        seed: u64,
    ) -> Result<Self> {
        config.validate()?;
        let lengths = lengths.plan(config.block_rows)?;
        let dense = config.dense_weights(cells)?;
        let of_stages = config.stages.iter().map(|stage| stage.from_block);
        let of_lengths = lengths.stages().iter().map(|stage| stage.from_block);
        let starts: BTreeSet<u64> = of_stages.chain(of_lengths).collect();
        let mut spans: Vec<Span> = Vec::new();
        for from_block in starts {
            let stage = config.stages.partition_point(|stage| stage.from_block <= from_block) - 1;
            let length = lengths.stages()[lengths.stage_of_block(from_block)];
            let (weights, block_rows) = (&dense[stage], length.block_rows);
            let quotas = Quotas::new(weights, block_rows);
            let lost = (0..cells.len()).find(|&c| weights[c] > 0.0 && quotas.units[c] == 0);
            if let Some(cell) = lost {
                let (blocks, tokens) = (super::PERIOD_BLOCKS, length.seq_len);
                return Err(DataError::Mixture {
                    field: format!("stages[{stage}].weights.{}", cells[cell]),
                    found: weights[cell].to_string(),
                    needed: format!(
                        "0, or one row in {blocks} blocks, of {block_rows} rows of {tokens} tokens"
                    ),
                });
            }
            let rows_before = match spans.last() {
                None => vec![0; cells.len()],
                Some(last) => last.rows_around(from_block).0,
            };
            spans.push(Span { from_block, stage, rows_before, plan: StagePlan::new(quotas) });
        }
        Ok(Self { lengths, seed, num_cells: cells.len(), spans, recent: Mutex::default() })
    }

    /// The cell of a row and the row's place in it.
    pub fn locate(&self, row: u64) -> Slot {
        let (block, position) = self.lengths.block_of_row(row);
        self.block(block).slot(position)
    }

    /// Index of the stage that deals a row.
    pub fn stage_of(&self, row: u64) -> usize {
        self.span_of(self.lengths.block_of_row(row).0).stage
    }

    /// Rows of each cell among the first `num_rows` rows.
    ///
    /// Time is that of at most one block.
    pub fn consumed(&self, num_rows: u64) -> Vec<u64> {
        let (block, rest) = self.lengths.block_of_row(num_rows);
        let block = self.block(block);
        let mut rows = block.rows_before.clone();
        for position in 0..rest {
            rows[block.slot(position).cell as usize] += 1;
        }
        rows
    }

    /// Tokens of each cell among the first `num_rows` rows.
    pub fn consumed_tokens(&self, num_rows: u64) -> Vec<u64> {
        let (mut tokens, mut before) = (vec![0; self.num_cells], vec![0; self.num_cells]);
        let stages = self.lengths.stages();
        for (index, stage) in stages.iter().enumerate() {
            let end = stages.get(index + 1).map_or(num_rows, |next| next.first_row.min(num_rows));
            let rows = self.consumed(end);
            for ((tokens, rows), before) in tokens.iter_mut().zip(&rows).zip(&before) {
                *tokens += (rows - before) * stage.seq_len as u64;
            }
            if end == num_rows {
                break;
            }
            before = rows;
        }
        tokens
    }

    /// Rows of each cell in one block.
    pub fn block_counts(&self, block: u64) -> Vec<u64> {
        let ends = &self.block(block).ends;
        (0..ends.len()).map(|c| ends[c] - if c == 0 { 0 } else { ends[c - 1] }).collect()
    }

    /// Where the rows of every length lie.
    pub fn lengths(&self) -> &LengthPlan {
        &self.lengths
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
        let (rows_before, rows_after) = self.span_of(block).rows_around(block);
        let mut end = 0;
        let counts = rows_after.iter().zip(&rows_before).map(|(after, before)| after - before);
        let ends = counts
            .map(|count| {
                end += count;
                end
            })
            .collect();
        let order = Permutation::new(end, derive_seed(self.seed, &[BLOCK_ORDER, block]));
        BlockPlan { rows_before, ends, order }
    }

    fn span_of(&self, block: u64) -> &Span {
        &self.spans[self.spans.partition_point(|span| span.from_block <= block) - 1]
    }
}

impl Span {
    /// Rows of each cell before a block of this span, and behind it.
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
