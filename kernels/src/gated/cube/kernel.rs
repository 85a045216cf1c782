#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use super::super::Activation;
use crate::cube::units::sum_of_units;
use crate::cube::values::sigmoid;

/// A gate serves `share` values; a unit for each value.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    value: &[F],
    gate: &[F],
    out: &mut [F],
    share: usize,
    #[comptime] activation: Activation,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let gate = f32::cast_from(gate[ABSOLUTE_POS / share]);
    let value = f32::cast_from(value[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = F::cast_from(value * activated(gate, activation));
}

/// With the activation f, `dvalue = dy f(gate)` and `dgate = dy value f'(gate)`; a unit for each
/// value.
#[cube(launch)]
pub(crate) fn backward<F: Float>(
    value: &[F],
    gate: &[F],
    grad: &[F],
    dvalue: &mut [F],
    dgate: &mut [F],
    #[comptime] activation: Activation,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dvalue.len() {
        terminate!();
    }
    let gate = f32::cast_from(gate[ABSOLUTE_POS]);
    let value = f32::cast_from(value[ABSOLUTE_POS]);
    let grad = f32::cast_from(grad[ABSOLUTE_POS]);
    dvalue[ABSOLUTE_POS] = F::cast_from(grad * activated(gate, activation));
    dgate[ABSOLUTE_POS] = F::cast_from(grad * value * slope(gate, activation));
}

/// [`backward`] with a gate for each row, whose `dgate` is `f'(gate) dy.value`; a cube for each row.
#[cube(launch)]
pub(crate) fn row_backward<F: Float>(
    value: &[F],
    gate: &[F],
    grad: &[F],
    dvalue: &mut [F],
    dgate: &mut [F],
    dim: usize,
    #[comptime] activation: Activation,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS;
    if row >= dgate.len() {
        terminate!();
    }
    let gate = f32::cast_from(gate[row]);
    let factor = activated(gate, activation);
    let mut product = 0.0f32;
    for i in range_stepped(row * dim + UNIT_POS as usize, (row + 1) * dim, units) {
        let grad = f32::cast_from(grad[i]);
        product += grad * f32::cast_from(value[i]);
        dvalue[i] = F::cast_from(grad * factor);
    }
    let product = sum_of_units(product, units);
    if UNIT_POS == 0 {
        dgate[row] = F::cast_from(product * slope(gate, activation));
    }
}

#[cube]
fn activated(gate: f32, #[comptime] activation: Activation) -> f32 {
    let s = sigmoid(gate);
    match comptime!(activation) {
        Activation::Silu => gate * s,
        Activation::Sigmoid => s,
        Activation::TwiceSigmoid => 2.0 * s,
    }
}

/// The derivative of [`activated`].
#[cube]
fn slope(gate: f32, #[comptime] activation: Activation) -> f32 {
    let s = sigmoid(gate);
    match comptime!(activation) {
        Activation::Silu => s * (1.0 + gate * (1.0 - s)),
        Activation::Sigmoid => s * (1.0 - s),
        Activation::TwiceSigmoid => 2.0 * s * (1.0 - s),
    }
}
