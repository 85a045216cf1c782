//! The lengths of a run's rows, as a user writes them.

use serde::{Deserialize, Serialize};

use super::LengthPlan;
use crate::{DataError, Result};

/// How many tokens a row has over a run.
///
/// ```
/// use fulmar_data::{LengthChange, RowLengths};
///
/// // Rows of 4,096 tokens, of 8,192 from block 44,715 on; up to 262,144 are planned for later.
/// let changes = vec![LengthChange { from_block: 44_715, seq_len: 8_192 }];
/// RowLengths { first: 4_096, longest: 262_144, changes }.validate()?;
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowLengths {
    /// Tokens of a row at the start; 2 or more.
    pub first: usize,
    /// Tokens of the longest row that the run may ever have, the length of a page; a multiple of
    /// every other length. Fixed for a run: with other pages all rows would be others.
    pub longest: usize,
    /// Later lengths. Append-only in a run: earlier ones say what was read.
    #[serde(default)]
    pub changes: Vec<LengthChange>,
}

/// A length that holds from one block on, until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthChange {
    /// First block of the mixture, counted from the start of the run; 1 or more, ascending.
    pub from_block: u64,
    /// Tokens of a row from there on; a divisor of [`RowLengths::longest`], not the length before.
    pub seq_len: usize,
}

impl RowLengths {
    /// One length for the whole run.
    pub fn constant(seq_len: usize) -> Self {
        Self { first: seq_len, longest: seq_len, changes: Vec::new() }
    }

    /// Checks the numbers alone, without a mixture.
    ///
    /// # Errors
    /// [`DataError::SeqLen`] for a first length below 2; [`DataError::RowLengths`] naming the
    /// field, its value and the rule.
    pub fn validate(&self) -> Result<()> {
        if self.first < 2 {
            return Err(DataError::SeqLen { found: self.first, needed: "2 or more" });
        }
        if self.longest == 0 || !self.longest.is_multiple_of(self.first) {
            let needed = format!("a multiple of `first`, {}", self.first);
            return Err(refused("longest".to_owned(), self.longest, needed));
        }
        let (mut next_block, mut before) = (1, self.first);
        for (index, change) in self.changes.iter().enumerate() {
            if change.from_block < next_block {
                let needed = match index {
                    0 => "1 or more; at block 0 the length is `first`".to_owned(),
                    _ => format!("{next_block} or more, after the change before"),
                };
                let field = format!("changes[{index}].from_block");
                return Err(refused(field, change.from_block, needed));
            }
            if change.seq_len < 2 || !self.longest.is_multiple_of(change.seq_len) {
                let needed = format!("a divisor of `longest`, {}, of 2 or more", self.longest);
                return Err(refused(field_of(index), change.seq_len, needed));
            }
            if change.seq_len == before {
                let needed = "a length other than the one before".to_owned();
                return Err(refused(field_of(index), change.seq_len, needed));
            }
            next_block = change.from_block.saturating_add(1);
            before = change.seq_len;
        }
        Ok(())
    }

    /// The arithmetic of these lengths over blocks of `block_rows` rows of the first length.
    ///
    /// # Errors
    /// Those of [`RowLengths::validate`]; [`DataError::Mixture`] for `block_rows`;
    /// [`DataError::RowLengths`] for a length that does not divide a block's tokens.
    pub fn plan(&self, block_rows: u64) -> Result<LengthPlan> {
        LengthPlan::new(self, block_rows)
    }

    /// The field that asks for pages of their length.
    pub(crate) fn field_of_longest(&self) -> String {
        if self.first == self.longest {
            return "first".to_owned();
        }
        let change = self.changes.iter().position(|change| change.seq_len == self.longest);
        change.map_or_else(|| "longest".to_owned(), field_of)
    }
}

/// The path of a change's length.
pub(super) fn field_of(change: usize) -> String {
    format!("changes[{change}].seq_len")
}

pub(super) fn refused(field: String, found: impl ToString, needed: String) -> DataError {
    DataError::RowLengths { field, found: found.to_string(), needed }
}
