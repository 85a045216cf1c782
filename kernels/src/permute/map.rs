use burn::tensor::{Int, Tensor};

use crate::KernelError;

/// Which row holds which assignment, both ways. An assignment is a (token, slot) pair; its number
/// is `token * k + slot`.
#[derive(Debug, Clone)]
pub struct RowMap {
    /// The row of each assignment [tokens, k]; -1 where the assignment is dropped.
    pub row_of: Tensor<2, Int>,
    /// The assignment of each row `[rows]`; -1 where the row is empty.
    pub assignment_of: Tensor<1, Int>,
}

impl RowMap {
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

    /// Checks on the host that every id is within bounds and that the two directions agree.
    ///
    /// The CPU kernels check each map they are given; a device's kernels cannot without waiting,
    /// so a map that was not built by this code belongs here first.
    ///
    /// # Errors
    /// [`KernelError::Index`] with the first id that is out of bounds or not answered by the other
    /// direction.
    pub fn validate(&self) -> Result<(), KernelError> {
        let host = |data: burn::tensor::TensorData| data.iter::<i64>().collect::<Vec<_>>();
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
