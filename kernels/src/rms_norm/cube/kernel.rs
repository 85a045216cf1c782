use cubecl::prelude::*;

use crate::cube::units::sum_of_units;

/// `out = x inverse gain`; a cube for each row.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    x: &[F],
    gain: &[F],
    out: &mut [F],
    dim: usize,
    eps: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let start = CUBE_POS * dim;
    if start >= out.len() {
        terminate!();
    }
    let inverse = inverse_rms::<F>(x, start, dim, eps, units);
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let value = f32::cast_from(x[start + i]) * inverse * f32::cast_from(gain[i]);
        out[start + i] = F::cast_from(value);
    }
}

/// With r = 1 / rms: `dx = r (gain dy - x r^2 mean(x gain dy))`, and r; a cube for each row.
#[cube(launch)]
pub(crate) fn input_gradient<F: Float>(
    x: &[F],
    gain: &[F],
    grad: &[F],
    dx: &mut [F],
    inverse: &mut [f32],
    dim: usize,
    eps: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let start = CUBE_POS * dim;
    if start >= dx.len() {
        terminate!();
    }
    let r = inverse_rms::<F>(x, start, dim, eps, units);
    let mut dot = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let pull = f32::cast_from(gain[i]) * f32::cast_from(grad[start + i]);
        dot += f32::cast_from(x[start + i]) * pull;
    }
    let pull = sum_of_units(dot, units) / f32::cast_from(dim) * r * r;
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let push = f32::cast_from(gain[i]) * f32::cast_from(grad[start + i]);
        dx[start + i] = F::cast_from(r * (push - f32::cast_from(x[start + i]) * pull));
    }
    if UNIT_POS == 0 {
        inverse[CUBE_POS] = r;
    }
}

/// `sum of x r dy` over blocks of rows; a unit for each column of a block.
#[cube(launch)]
pub(crate) fn gain_gradients<F: Float>(
    x: &[F],
    grad: &[F],
    inverse: &[f32],
    dgains: &mut [f32],
    dim: usize,
    #[comptime] row_block: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dgains.len() {
        terminate!();
    }
    let column = ABSOLUTE_POS % dim;
    let first = ABSOLUTE_POS / dim * row_block;
    let end = min(first + row_block, inverse.len());
    let mut sum = 0.0f32;
    for row in first..end {
        let at = row * dim + column;
        sum += f32::cast_from(x[at]) * inverse[row] * f32::cast_from(grad[at]);
    }
    dgains[ABSOLUTE_POS] = sum;
}

/// `1 / sqrt(mean(x^2) + eps)` of the row that starts at `start`.
#[cube]
pub(crate) fn inverse_rms<F: Float>(
    x: &[F],
    start: usize,
    dim: usize,
    eps: f32,
    #[comptime] units: usize,
) -> f32 {
    let mut squares = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let value = f32::cast_from(x[start + i]);
        squares += value * value;
    }
    1.0 / (sum_of_units(squares, units) / f32::cast_from(dim) + eps).sqrt()
}
