use cubecl::prelude::*;

use crate::cube::values::sigmoid;

/// A unit for each value.
#[cube(launch)]
pub(crate) fn forward<F: Float>(x: &[F], out: &mut [F], #[define(F)] _dtype: ElemType) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let x = f32::cast_from(x[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = F::cast_from(x * sigmoid(x));
}

/// With s = sigmoid(x), `dx = dy s (1 + x (1 - s))`; a unit for each value.
#[cube(launch)]
pub(crate) fn backward<F: Float>(x: &[F], grad: &[F], dx: &mut [F], #[define(F)] _dtype: ElemType) {
    if ABSOLUTE_POS >= dx.len() {
        terminate!();
    }
    let x = f32::cast_from(x[ABSOLUTE_POS]);
    let s = sigmoid(x);
    let slope = s * (1.0 + x * (1.0 - s));
    dx[ABSOLUTE_POS] = F::cast_from(f32::cast_from(grad[ABSOLUTE_POS]) * slope);
}
