#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use super::super::Activation;
use crate::cube::units::sum_of_units;
use crate::cube::values::{sigmoids, sum_of_lanes};

/// A unit for each vector.
#[cube(launch)]
pub(crate) fn forward<F: Float, N: Size>(
    value: &[Vector<F, N>],
    gate: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let factor = activated::<N>(Vector::cast_from(gate[ABSOLUTE_POS]), activation);
    let value = Vector::<f32, N>::cast_from(value[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = Vector::cast_from(value * factor);
}

/// [`forward`] with a gate for each row of `dim` vectors.
#[cube(launch)]
pub(crate) fn row_forward<F: Float, N: Size>(
    value: &[Vector<F, N>],
    gate: &[F],
    out: &mut [Vector<F, N>],
    dim: usize,
    #[comptime] activation: Activation,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let gate = Vector::new(f32::cast_from(gate[ABSOLUTE_POS / dim]));
    let value = Vector::<f32, N>::cast_from(value[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = Vector::cast_from(value * activated::<N>(gate, activation));
}

/// With the activation f, `dvalue = dy f(gate)` and `dgate = dy value f'(gate)`; a unit for each
/// vector.
#[cube(launch)]
pub(crate) fn backward<F: Float, N: Size>(
    value: &[Vector<F, N>],
    gate: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    dvalue: &mut [Vector<F, N>],
    dgate: &mut [Vector<F, N>],
    #[comptime] activation: Activation,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dvalue.len() {
        terminate!();
    }
    let gate = Vector::<f32, N>::cast_from(gate[ABSOLUTE_POS]);
    let value = Vector::<f32, N>::cast_from(value[ABSOLUTE_POS]);
    let grad = Vector::<f32, N>::cast_from(grad[ABSOLUTE_POS]);
    dvalue[ABSOLUTE_POS] = Vector::cast_from(grad * activated::<N>(gate, activation));
    dgate[ABSOLUTE_POS] = Vector::cast_from(grad * value * slope::<N>(gate, activation));
}

/// [`backward`] with a gate for each row of `dim` vectors, whose `dgate` is `f'(gate) dy.value`; a
/// cube for each row.
#[cube(launch)]
pub(crate) fn row_backward<F: Float, N: Size>(
    value: &[Vector<F, N>],
    gate: &[F],
    grad: &[Vector<F, N>],
    dvalue: &mut [Vector<F, N>],
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
    let gate = Vector::<f32, N>::new(f32::cast_from(gate[row]));
    let factor = activated::<N>(gate, activation);
    let mut products = Vector::<f32, N>::new(0.0);
    for i in range_stepped(row * dim + UNIT_POS as usize, (row + 1) * dim, units) {
        let grad = Vector::<f32, N>::cast_from(grad[i]);
        products += grad * Vector::cast_from(value[i]);
        dvalue[i] = Vector::cast_from(grad * factor);
    }
    let product = sum_of_units(sum_of_lanes::<N>(products), units);
    if UNIT_POS == 0 {
        dgate[row] = F::cast_from(product * slope::<N>(gate, activation).extract(0usize));
    }
}

#[cube]
fn activated<N: Size>(gate: Vector<f32, N>, #[comptime] activation: Activation) -> Vector<f32, N> {
    let s = sigmoids::<N>(gate);
    match comptime!(activation) {
        Activation::Silu => gate * s,
        Activation::Sigmoid => s,
        Activation::TwiceSigmoid => s + s,
    }
}

/// The derivative of [`activated`].
#[cube]
fn slope<N: Size>(gate: Vector<f32, N>, #[comptime] activation: Activation) -> Vector<f32, N> {
    let s = sigmoids::<N>(gate);
    let rest = Vector::<f32, N>::new(1.0) - s;
    match comptime!(activation) {
        Activation::Silu => s + gate * s * rest,
        Activation::Sigmoid => s * rest,
        Activation::TwiceSigmoid => (s + s) * rest,
    }
}
