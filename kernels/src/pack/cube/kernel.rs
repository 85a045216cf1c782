#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::values::in_bounds;

/// Each row is that of the header where one stands, else that of its token, or zero; a unit for
/// each vector of a row.
#[cube(launch)]
pub(crate) fn pack<F: Float, N: Size>(
    x: &[Vector<F, N>],
    assignment_of: &[i32],
    header: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    tokens: usize,
    slots: usize,
    part_rows: usize,
    header_rows: usize,
    dim: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let (row, column) = (ABSOLUTE_POS / dim, ABSOLUTE_POS % dim);
    let (part, of_part) = (row / part_rows, row % part_rows);
    let assignment = assignment_of[row];
    let mut value = Vector::new(F::new(0.0));
    if of_part < header_rows {
        value = header[(part * header_rows + of_part) * dim + column];
    } else if in_bounds(assignment, tokens * slots) {
        value = x[assignment as usize / slots * dim + column];
    }
    out[ABSOLUTE_POS] = value;
}
