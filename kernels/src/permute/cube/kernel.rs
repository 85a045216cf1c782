#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::{in_bounds, sum_of_lanes};

/// Each row is that of its token, or zero; a unit for each vector of a row.
#[cube(launch)]
pub(crate) fn dispatch<F: Float, N: Size>(
    x: &[Vector<F, N>],
    assignment_of: &[i32],
    out: &mut [Vector<F, N>],
    tokens: usize,
    slots: usize,
    dim: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let assignment = assignment_of[ABSOLUTE_POS / dim];
    let mut value = Vector::new(F::new(0.0));
    if in_bounds(assignment, tokens * slots) {
        value = x[assignment as usize / slots * dim + ABSOLUTE_POS % dim];
    }
    out[ABSOLUTE_POS] = value;
}

/// The sum of the rows of a token's slots in slot order; a unit for each vector of a token.
#[cube(launch)]
pub(crate) fn sum_of_slots<F: Float, N: Size>(
    parts: &Sequence<Box<[Vector<F, N>]>>,
    starts: &Sequence<usize>,
    weights: &[F],
    row_of: &[i32],
    out: &mut [Vector<F, N>],
    rows: usize,
    slots: usize,
    dim: usize,
    #[comptime] is_weighted: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let (token, column) = (ABSOLUTE_POS / dim, ABSOLUTE_POS % dim);
    let mut sum = Vector::<f32, N>::new(0.0);
    for slot in 0..slots {
        let assignment = token * slots + slot;
        let row = row_of[assignment];
        if in_bounds(row, rows) {
            let value = vector_of::<F, N>(parts, starts, row as usize, column, dim);
            if is_weighted {
                sum += Vector::new(f32::cast_from(weights[assignment])) * value;
            } else {
                sum += value;
            }
        }
    }
    out[ABSOLUTE_POS] = Vector::cast_from(sum);
}

/// Each row of a part is its weight times the gradient of its token, or zero; a unit for each
/// vector of a row.
#[cube(launch)]
pub(crate) fn part_gradient<F: Float, N: Size>(
    weights: &[F],
    assignment_of: &[i32],
    grad: &[Vector<F, N>],
    dpart: &mut [Vector<F, N>],
    first: usize,
    tokens: usize,
    slots: usize,
    dim: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dpart.len() {
        terminate!();
    }
    let assignment = assignment_of[first + ABSOLUTE_POS / dim];
    let mut value = Vector::<f32, N>::new(0.0);
    if in_bounds(assignment, tokens * slots) {
        let assignment = assignment as usize;
        let weight = Vector::new(f32::cast_from(weights[assignment]));
        value = weight * Vector::cast_from(grad[assignment / slots * dim + ABSOLUTE_POS % dim]);
    }
    dpart[ABSOLUTE_POS] = Vector::cast_from(value);
}

/// Each slot's row times the gradient of its token, 0 where the slot is dropped; a cube for each
/// slot.
#[cube(launch)]
pub(crate) fn weight_gradients<F: Float, N: Size>(
    parts: &Sequence<Box<[Vector<F, N>]>>,
    starts: &Sequence<usize>,
    row_of: &[i32],
    grad: &[Vector<F, N>],
    dweights: &mut [F],
    rows: usize,
    slots: usize,
    dim: usize,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let assignment = CUBE_POS;
    if assignment >= dweights.len() {
        terminate!();
    }
    let start = assignment / slots * dim;
    let row = row_of[assignment];
    let mut products = Vector::<f32, N>::new(0.0);
    if in_bounds(row, rows) {
        for i in range_stepped(UNIT_POS as usize, dim, units) {
            let value = vector_of::<F, N>(parts, starts, row as usize, i, dim);
            products += value * Vector::cast_from(grad[start + i]);
        }
    }
    let product = sum_of_units(sum_of_lanes::<N>(products), units);
    if UNIT_POS == 0 {
        dweights[assignment] = F::cast_from(product);
    }
}

/// A vector of a row that lies in one of the parts.
#[cube]
fn vector_of<F: Float, N: Size>(
    parts: &Sequence<Box<[Vector<F, N>]>>,
    starts: &Sequence<usize>,
    row: usize,
    column: usize,
    dim: usize,
) -> Vector<f32, N> {
    let mut value = Vector::<f32, N>::new(0.0);
    #[unroll]
    for part in 0..parts.len() {
        let start = starts[part];
        if row >= start && row < starts[part + 1] {
            value = Vector::cast_from(parts[part][(row - start) * dim + column]);
        }
    }
    value
}
