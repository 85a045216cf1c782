//! Batch index → rows, where a batch stands for a fixed number of tokens.

use std::ops::Range;

use super::LengthPlan;
use crate::{DataError, Result};

/// Which rows a batch has: batch b takes tokens `[b T, (b+1) T)` of the run.
///
/// Rows of one length make up a batch, since every length begins with a batch. An index is
/// multiplied by rows of a batch, never by tokens, so that any index whose rows can be counted is
/// good.
///
/// ```
/// use fulmar_data::RowLengths;
///
/// // Batches of 11,264 rows in blocks of 49,152: a new length may begin every 48 batches.
/// let lengths = RowLengths::constant(4_096).plan(49_152)?;
/// let batches = lengths.batches(11_264 * 4_096)?;
/// assert_eq!(batches.next_boundary(312_192), 312_192);
/// assert_eq!(batches.next_boundary(312_193), 312_240);
/// assert_eq!(batches.block(312_240), 71_555);
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    tokens_per_batch: u64,
    block_tokens: u64,
    stages: Vec<BatchStage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchStage {
    first_batch: u64,
    first_row: u64,
    seq_len: usize,
    batch_rows: u64,
}

impl BatchPlan {
    pub(super) fn new(lengths: &LengthPlan, tokens_per_batch: u64) -> Result<Self> {
        if tokens_per_batch == 0 {
            return Err(DataError::NoRows);
        }
        let block_tokens = lengths.block_tokens();
        let mut plan = Self { tokens_per_batch, block_tokens, stages: Vec::new() };
        for stage in lengths.stages() {
            let (seq_len, from_block) = (stage.seq_len, stage.from_block);
            if !tokens_per_batch.is_multiple_of(seq_len as u64) {
                return Err(DataError::BatchTokens { tokens_per_batch, seq_len });
            }
            // No overflow: the plan of lengths has multiplied these before.
            let tokens_before = from_block * block_tokens;
            let first_batch = tokens_before / tokens_per_batch;
            if !tokens_before.is_multiple_of(tokens_per_batch) {
                let next_batch = plan.next_boundary(first_batch + 1);
                return Err(DataError::ChangeInsideBatch {
                    seq_len,
                    from_block,
                    tokens_per_batch,
                    batch: first_batch,
                    next_block: plan.block(next_batch),
                    next_batch,
                });
            }
            let batch_rows = tokens_per_batch / seq_len as u64;
            let first_row = stage.first_row;
            plan.stages.push(BatchStage { first_batch, first_row, seq_len, batch_rows });
        }
        Ok(plan)
    }

    /// Rows of a batch.
    pub fn rows(&self, batch: u64) -> Range<u64> {
        let stage = self.stage(batch);
        let start = stage.first_row + (batch - stage.first_batch) * stage.batch_rows;
        start..start + stage.batch_rows
    }

    /// Tokens of each row of a batch.
    pub fn seq_len(&self, batch: u64) -> usize {
        self.stage(batch).seq_len
    }

    /// First batch of each length, and the length.
    pub fn starts(&self) -> impl ExactSizeIterator<Item = (u64, usize)> + '_ {
        self.stages.iter().map(|stage| (stage.first_batch, stage.seq_len))
    }

    /// Block of the mixture in which a batch begins.
    pub fn block(&self, batch: u64) -> u64 {
        let token = u128::from(batch) * u128::from(self.tokens_per_batch);
        (token / u128::from(self.block_tokens)) as u64
    }

    /// The batch in which a block begins.
    pub fn batch_of_block(&self, block: u64) -> u64 {
        let token = u128::from(block) * u128::from(self.block_tokens);
        (token / u128::from(self.tokens_per_batch)) as u64
    }

    /// The first batch at or behind `batch` that begins with a block, where a new length or a new
    /// stage of the mixture may begin.
    pub fn next_boundary(&self, batch: u64) -> u64 {
        let batches = self.block_tokens / gcd(self.block_tokens, self.tokens_per_batch);
        batch.div_ceil(batches) * batches
    }

    /// Tokens of a batch.
    pub fn tokens_per_batch(&self) -> u64 {
        self.tokens_per_batch
    }

    fn stage(&self, batch: u64) -> &BatchStage {
        let behind = self.stages.partition_point(|stage| stage.first_batch <= batch);
        &self.stages[behind - 1]
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
