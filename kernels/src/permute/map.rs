use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::KernelError;

/// Which row holds which assignment, both ways. An assignment is a (token, slot) pair; its number
/// is `token * k + slot`.
#[derive(Debug, Clone)]
pub struct RowMap {
    /// [tokens, k].
    pub(crate) row_of: Tensor<2, Int>,
    /// `[rows]`.
    pub(crate) assignment_of: Tensor<1, Int>,
    /// Whether the two directions are known to agree.
    pub(crate) checked: bool,
}

impl RowMap {
    /// In the place of a row: the assignment is dropped.
    pub const NONE: i32 = -1;

    /// A map of which nothing is known: the row of each assignment [tokens, k], -1 where the
    /// assignment is dropped, and the assignment of each row `[rows]`, -1 where the row is empty.
    ///
    /// The CPU kernels check such a map in every call; a device's kernels cannot without waiting,
    /// so there it belongs into [`validate`](Self::validate) first.
    pub fn new(row_of: Tensor<2, Int>, assignment_of: Tensor<1, Int>) -> Self {
        Self { row_of, assignment_of, checked: false }
    }

    /// The map in which assignment `i` has row `row_of[i]` of `rows`, -1 where it is dropped; it is
    /// checked here and then trusted.
    ///
    /// # Panics
    /// If `row_of` is no whole number of tokens of `slots` assignments, a row is not below `rows`,
    /// or two assignments have the same.
    pub fn from_rows(row_of: Vec<i32>, slots: usize, rows: usize, device: &Device) -> Self {
        let tokens = row_of.len().checked_div(slots).unwrap_or(0);
        let found = row_of.len();
        assert_eq!(tokens * slots, found, "row_map: {found} assignments are not {slots} a token");
        let mut assignment_of = vec![Self::NONE; rows];
        for (assignment, &row) in row_of.iter().enumerate() {
            if row != Self::NONE {
                let Some(place) = usize::try_from(row).ok().and_then(|r| assignment_of.get_mut(r))
                else {
                    panic!(
                        "row_map: `row_of[{assignment}]` is {row}, needed -1 to {}",
                        rows as i64 - 1
                    );
                };
                assert_eq!(
                    *place,
                    Self::NONE,
                    "row_map: `row_of[{assignment}]` is {row}, as is another"
                );
                *place = assignment as i32;
            }
        }
        let row_of = Tensor::from_data(TensorData::new(row_of, [tokens, slots]), device);
        let assignment_of = Tensor::from_data(TensorData::new(assignment_of, [rows]), device);
        Self { row_of, assignment_of, checked: true }
    }

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.row_of.dims()[0]
    }

    /// The number of slots of a token, `k`.
    pub fn slots(&self) -> usize {
        self.row_of.dims()[1]
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.assignment_of.dims()[0]
    }

    /// The way back of a map with one slot: its rows are the tokens and its tokens the rows.
    ///
    /// # Panics
    /// If the map does not have one slot.
    #[must_use]
    pub fn transposed(&self) -> Self {
        assert_eq!(self.slots(), 1, "row_map: slots of a map that goes back");
        Self {
            row_of: self.assignment_of.clone().reshape([self.rows(), 1]),
            assignment_of: self.row_of.clone().reshape([self.tokens()]),
            checked: self.checked,
        }
    }

    /// Checks on the host that every id is within bounds and that the two directions agree.
    ///
    /// # Errors
    /// [`KernelError::Index`] or [`KernelError::OneWay`] with the first id that is out of bounds or
    /// not answered by the other direction.
    pub fn validate(&self) -> Result<(), KernelError> {
        let host = |data: TensorData| data.iter::<i64>().collect::<Vec<_>>();
        check(
            "row_map",
            &host(self.row_of.clone().into_data()),
            &host(self.assignment_of.clone().into_data()),
        )
    }
}

/// Each id is -1 or within the other side, and the other side points back.
pub(super) fn check<I: Copy + Into<i64>>(
    op: &'static str,
    row_of: &[I],
    assignment_of: &[I],
) -> Result<(), KernelError> {
    points_back(op, "row_of", row_of, assignment_of)?;
    points_back(op, "assignment_of", assignment_of, row_of)
}

fn points_back<I: Copy + Into<i64>>(
    op: &'static str,
    argument: &'static str,
    from: &[I],
    to: &[I],
) -> Result<(), KernelError> {
    let bound = to.len() as i64;
    for (position, &id) in from.iter().enumerate() {
        let found: i64 = id.into();
        if found < -1 || found >= bound {
            return Err(KernelError::Index {
                op,
                argument,
                position,
                found,
                least: -1,
                most: bound - 1,
            });
        }
        if found >= 0 && to[found as usize].into() != position as i64 {
            return Err(KernelError::OneWay { op, argument, position, found });
        }
    }
    Ok(())
}
