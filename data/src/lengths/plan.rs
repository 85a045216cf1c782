//! Row index ↔ block and tokens of a row, over all lengths of a run.

use std::ops::Range;

use super::{
    BatchPlan, LengthChange, RowLengths,
    config::{field_of, refused},
};
use crate::{
    Result,
    mixture::{MAX_BLOCK_ROWS, require_block_rows},
};

/// A stretch of a run whose rows have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthStage {
    /// First block.
    pub from_block: u64,
    /// Global index of the first row.
    pub first_row: u64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Rows of a block.
    pub block_rows: u64,
}

/// Where the rows of every length lie.
///
/// A block stands for the same number of tokens in every stage, so that its steps are the same
/// whatever the lengths are; the rows of a block become fewer as they grow. Rows are numbered in
/// the order of reading, through all stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthPlan {
    longest: usize,
    block_tokens: u64,
    stages: Vec<LengthStage>,
}

impl LengthPlan {
    pub(super) fn new(lengths: &RowLengths, block_rows: u64) -> Result<Self> {
        lengths.validate()?;
        require_block_rows(block_rows)?;
        let first = lengths.first;
        let Some(block_tokens) = block_rows.checked_mul(first as u64) else {
            let needed = format!("a block of {block_rows} rows below 2^64 tokens");
            return Err(refused("first".to_owned(), first, needed));
        };
        let start = LengthStage { from_block: 0, first_row: 0, seq_len: first, block_rows };
        let mut plan = Self { longest: lengths.longest, block_tokens, stages: vec![start] };
        for (index, change) in lengths.changes.iter().enumerate() {
            let &LengthChange { from_block, seq_len } = change;
            let rows = block_tokens / seq_len as u64;
            let whole = block_tokens.is_multiple_of(seq_len as u64);
            if !whole || !(1..=MAX_BLOCK_ROWS).contains(&rows) {
                let needed = format!(
                    "a length of which a block of {block_tokens} tokens ({block_rows} rows of \
                     {first}) holds 1 to {MAX_BLOCK_ROWS} whole rows"
                );
                return Err(refused(field_of(index), seq_len, needed));
            }
            if from_block.checked_mul(block_tokens).is_none() {
                let needed = format!("a block within 2^64 tokens, {block_tokens} a block");
                return Err(refused(format!("changes[{index}].from_block"), from_block, needed));
            }
            let first_row = plan.rows_of_block(from_block).start;
            plan.stages.push(LengthStage { from_block, first_row, seq_len, block_rows: rows });
        }
        Ok(plan)
    }

    /// Batches of a fixed number of tokens.
    ///
    /// # Errors
    /// [`DataError::NoRows`](crate::DataError::NoRows) for 0;
    /// [`DataError::BatchTokens`](crate::DataError::BatchTokens) if a batch does not hold whole
    /// rows of a length; [`DataError::ChangeInsideBatch`](crate::DataError::ChangeInsideBatch) if
    /// a length begins inside a batch.
    pub fn batches(&self, tokens_per_batch: u64) -> Result<BatchPlan> {
        BatchPlan::new(self, tokens_per_batch)
    }

    /// The stages, in order; the first begins with block 0.
    pub fn stages(&self) -> &[LengthStage] {
        &self.stages
    }

    /// Index of the stage that a row belongs to.
    pub fn stage_of_row(&self, row: u64) -> usize {
        self.stages.partition_point(|stage| stage.first_row <= row) - 1
    }

    /// Index of the stage that a block belongs to.
    pub fn stage_of_block(&self, block: u64) -> usize {
        self.stages.partition_point(|stage| stage.from_block <= block) - 1
    }

    /// Tokens of the row at a global index.
    pub fn seq_len_at(&self, row: u64) -> usize {
        self.stages[self.stage_of_row(row)].seq_len
    }

    /// The block of a row, and the row's place in it.
    pub fn block_of_row(&self, row: u64) -> (u64, u64) {
        let stage = &self.stages[self.stage_of_row(row)];
        let within = row - stage.first_row;
        (stage.from_block + within / stage.block_rows, within % stage.block_rows)
    }

    /// The rows of a block.
    pub fn rows_of_block(&self, block: u64) -> Range<u64> {
        let stage = &self.stages[self.stage_of_block(block)];
        let start = stage.first_row + (block - stage.from_block) * stage.block_rows;
        start..start + stage.block_rows
    }

    /// Tokens of a block, the same in every stage.
    pub fn block_tokens(&self) -> u64 {
        self.block_tokens
    }

    /// Tokens of the longest planned row, which is the length of a page.
    pub fn longest(&self) -> usize {
        self.longest
    }
}
