#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

/// The factors of one step.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Coefficients {
    beta1: f32,
    beta2: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    first: f32,
    second: f32,
    eps: f32,
}

/// Adam in place; a unit for each value.
#[cube(launch)]
pub(crate) fn step<F: Float>(
    w: &mut [F],
    grad: &[F],
    m: &mut [F],
    v: &mut [F],
    coefficients: Coefficients,
    lr: f32,
    decay: f32,
    len: usize,
    #[define(F)] _dtype: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i >= len {
        terminate!();
    }
    let grad = f32::cast_from(grad[i]);
    let direction = moments::<F>(grad, m, v, i, coefficients);
    let old = f32::cast_from(w[i]);
    w[i] = F::cast_from(old - direction * lr - old * decay);
}

/// The new moments, and the direction in the place of the gradient; a unit for each value.
#[cube(launch)]
pub(crate) fn direction<F: Float>(
    grad: &mut [F],
    m: &mut [F],
    v: &mut [F],
    coefficients: Coefficients,
    len: usize,
    #[define(F)] _dtype: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i >= len {
        terminate!();
    }
    let value = f32::cast_from(grad[i]);
    grad[i] = F::cast_from(moments::<F>(value, m, v, i, coefficients));
}

/// Updates the moments of a value and returns the direction.
#[cube]
fn moments<F: Float>(grad: f32, m: &mut [F], v: &mut [F], i: usize, c: Coefficients) -> f32 {
    let first = f32::cast_from(m[i]) * c.beta1 + grad * c.one_minus_beta1;
    let second = f32::cast_from(v[i]) * c.beta2 + grad * grad * c.one_minus_beta2;
    m[i] = F::cast_from(first);
    v[i] = F::cast_from(second);
    first * c.first / ((second * c.second).sqrt() + c.eps)
}
