//! Row maps from plans on the host.

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_kernels::permute::RowMap;

/// No row, no assignment.
pub(super) const NONE: i32 = -1;

/// The map in which assignment `i` of `tokens` x `k` has row `row_of[i]`, [`NONE`] if dropped.
pub(super) fn row_map(row_of: Vec<i32>, k: usize, rows: usize, device: &Device) -> RowMap {
    let mut assignment_of = vec![NONE; rows];
    for (assignment, &row) in row_of.iter().enumerate() {
        if row != NONE {
            assignment_of[row as usize] = assignment as i32;
        }
    }
    let tokens = row_of.len().checked_div(k).unwrap_or(0);
    RowMap {
        row_of: Tensor::from_data(TensorData::new(row_of, [tokens, k]), device),
        assignment_of: Tensor::from_data(TensorData::new(assignment_of, [rows]), device),
    }
}

/// The map back from rows to where they came from, of a map with one slot.
pub(super) fn transposed(map: &RowMap) -> RowMap {
    RowMap {
        row_of: map.assignment_of.clone().reshape([map.rows(), 1]),
        assignment_of: map.row_of.clone().reshape([map.tokens()]),
    }
}
