//! Rows of `dim` vectors.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::sum_of_lanes;

/// `out = x inverse gain`; a cube for each row.
#[cube(launch)]
pub(crate) fn forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    gain: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    dim: usize,
    eps: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let start = CUBE_POS * dim;
    if start >= out.len() {
        terminate!();
    }
    let inverse = Vector::<f32, N>::new(inverse_rms::<F, N>(x, start, dim, eps, units));
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let gain = Vector::<f32, N>::cast_from(gain[i]);
        let value = Vector::<f32, N>::cast_from(x[start + i]) * inverse * gain;
        out[start + i] = Vector::cast_from(value);
    }
}

/// With r = 1 / rms: `dx = r (gain dy - x r^2 mean(x gain dy))`, and r; a cube for each row.
#[cube(launch)]
pub(crate) fn input_gradient<F: Float, N: Size>(
    x: &[Vector<F, N>],
    gain: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
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
    let r = inverse_rms::<F, N>(x, start, dim, eps, units);
    let mut products = Vector::<f32, N>::new(0.0);
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let gain = Vector::<f32, N>::cast_from(gain[i]);
        let x = Vector::<f32, N>::cast_from(x[start + i]);
        products += x * gain * Vector::cast_from(grad[start + i]);
    }
    let dot = sum_of_units(sum_of_lanes::<N>(products), units);
    let pull = Vector::<f32, N>::new(dot / f32::cast_from(dim * N::value()) * r * r);
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let gain = Vector::<f32, N>::cast_from(gain[i]);
        let push = gain * Vector::cast_from(grad[start + i]);
        let x = Vector::<f32, N>::cast_from(x[start + i]);
        dx[start + i] = Vector::cast_from(Vector::new(r) * (push - x * pull));
    }
    if UNIT_POS == 0 {
        inverse[CUBE_POS] = r;
    }
}

/// `sum of x r dy` over blocks of rows of `dim` values; a unit for each column of a block.
#[cube(launch)]
#[allow(clippy::needless_range_loop, reason = "a loop of a device")]
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
fn inverse_rms<F: Float, N: Size>(
    x: &[Vector<F, N>],
    start: usize,
    dim: usize,
    eps: f32,
    #[comptime] units: usize,
) -> f32 {
    let mut squares = Vector::<f32, N>::new(0.0);
    for i in range_stepped(UNIT_POS as usize, dim, units) {
        let value = Vector::<f32, N>::cast_from(x[start + i]);
        squares += value * value;
    }
    let sum = sum_of_units(sum_of_lanes::<N>(squares), units);
    1.0 / (sum / f32::cast_from(dim * N::value()) + eps).sqrt()
}
