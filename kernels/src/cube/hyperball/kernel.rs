//! `w` and `update` [groups, len] in blocks of `block` values, a cube for each block of a group;
//! `squares` [groups, 2] holds the sums of squares of a group's weights and of its update.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;

/// The sums of squares of a block's weights and of its update.
#[cube(launch)]
pub(crate) fn squares<W: Float, U: Float>(
    w: &[W],
    update: &[U],
    squares: &mut [f32],
    len: usize,
    #[comptime] block: usize,
    #[comptime] units: usize,
    #[define(W, U)] _dtypes: [ElemType; 2],
) {
    if CUBE_POS * 2 >= squares.len() {
        terminate!();
    }
    let (start, end) = values_of_cube(len, block);
    let mut of_w = 0.0f32;
    let mut of_update = 0.0f32;
    for i in range_stepped(start + UNIT_POS as usize, end, units) {
        let (w, update) = (f32::cast_from(w[i]), f32::cast_from(update[i]));
        of_w += w * w;
        of_update += update * update;
    }
    let of_w = sum_of_units(of_w, units);
    let of_update = sum_of_units(of_update, units);
    if UNIT_POS == 0 {
        squares[CUBE_POS * 2] = of_w;
        squares[CUBE_POS * 2 + 1] = of_update;
    }
}

/// `w -= lr |w| / |update| update`, and the sums of squares of the blocks of the result; weights
/// that are zero, or whose update is, stay.
#[cube(launch)]
pub(crate) fn advance<W: Float, U: Float>(
    w: &mut [W],
    update: &[U],
    squares: &[f32],
    moved: &mut [f32],
    lr: f32,
    len: usize,
    #[comptime] block: usize,
    #[comptime] units: usize,
    #[define(W, U)] _dtypes: [ElemType; 2],
) {
    if CUBE_POS >= moved.len() {
        terminate!();
    }
    let group = CUBE_POS / len.div_ceil(block);
    let (of_w, of_update) = (squares[group * 2], squares[group * 2 + 1]);
    let mut rate = 0.0f32;
    if of_w != 0.0 && of_update != 0.0 {
        rate = lr * (of_w / of_update).sqrt();
    }
    let (start, end) = values_of_cube(len, block);
    let mut sum = 0.0f32;
    for i in range_stepped(start + UNIT_POS as usize, end, units) {
        let value = W::cast_from(f32::cast_from(w[i]) - f32::cast_from(update[i]) * rate);
        w[i] = value;
        let value = f32::cast_from(value);
        sum += value * value;
    }
    let sum = sum_of_units(sum, units);
    if UNIT_POS == 0 {
        moved[CUBE_POS] = sum;
    }
}

/// `w *= |w before| / |w|`, where [`advance`] moved.
#[cube(launch)]
pub(crate) fn rescale<W: Float>(
    w: &mut [W],
    squares: &[f32],
    moved: &[f32],
    len: usize,
    cubes: usize,
    #[comptime] block: usize,
    #[comptime] units: usize,
    #[define(W)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let group = CUBE_POS / len.div_ceil(block);
    let (of_w, of_update, of_moved) = (squares[group * 2], squares[group * 2 + 1], moved[group]);
    if of_w != 0.0 && of_update != 0.0 && of_moved != 0.0 {
        let scale = (of_w / of_moved).sqrt();
        let (start, end) = values_of_cube(len, block);
        for i in range_stepped(start + UNIT_POS as usize, end, units) {
            w[i] = W::cast_from(f32::cast_from(w[i]) * scale);
        }
    }
}

/// The first value of this cube's block and the end of it.
#[cube]
fn values_of_cube(len: usize, #[comptime] block: usize) -> (usize, usize) {
    let blocks = len.div_ceil(block);
    let first = CUBE_POS % blocks * block;
    let start = CUBE_POS / blocks * len;
    (start + first, start + min(first + block, len))
}
