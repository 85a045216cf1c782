use std::borrow::Cow;

use burn::backend::Flex;

use super::RowIds;
use super::map::check;
use crate::flex::{contiguous, dims, integers_of};

impl RowIds<Flex> {
    /// The same ids, each list in order in memory, so that they can be read where they lie.
    pub(crate) fn contiguous(self) -> Self {
        let (row_of, assignment_of) = (contiguous(self.row_of), contiguous(self.assignment_of));
        Self { row_of, assignment_of, ..self }
    }
}

/// A map on the host whose ids are within bounds and agree in both directions.
pub(crate) struct HostIds<'a> {
    pub(super) tokens: usize,
    pub(super) slots: usize,
    pub(super) row_of: Cow<'a, [i32]>,
    pub(super) assignment_of: Cow<'a, [i32]>,
}

impl<'a> HostIds<'a> {
    /// Reads ids that are contiguous, and checks them unless that was done before.
    pub(crate) fn checked(op: &'static str, ids: &'a RowIds<Flex>) -> Self {
        let [tokens, slots] = dims(&ids.row_of);
        let (row_of, assignment_of) = (integers_of(&ids.row_of), integers_of(&ids.assignment_of));
        if !ids.checked
            && let Err(error) = check(op, &row_of, &assignment_of)
        {
            panic!("{error}");
        }
        Self { tokens, slots, row_of, assignment_of }
    }

    pub(crate) fn rows(&self) -> usize {
        self.assignment_of.len()
    }

    pub(crate) fn token_of(&self, row: usize) -> Option<usize> {
        let assignment = u32::try_from(self.assignment_of[row]).ok()?;
        Some((assignment / self.slots as u32) as usize)
    }

    /// The row of each slot of a token.
    pub(super) fn rows_of(&self, token: usize) -> impl Iterator<Item = Option<usize>> {
        let rows = &self.row_of[token * self.slots..][..self.slots];
        rows.iter().map(|&row| usize::try_from(row).ok())
    }
}
