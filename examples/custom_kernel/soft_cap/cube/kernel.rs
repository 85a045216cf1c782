//! A file of its own, since names of CubeCL's prelude clash with Burn's.

use cubecl::prelude::*;

/// `cap tanh(x / cap)`, a unit for each value.
#[cube(launch)]
pub(super) fn forward<F: Float>(x: &[F], out: &mut [F], cap: f32, #[define(F)] _dtype: ElemType) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let y = cap * (f32::cast_from(x[ABSOLUTE_POS]) / cap).tanh();
    out[ABSOLUTE_POS] = F::cast_from(y);
}

/// `dx = dy (1 - (y / cap)^2)`, a unit for each value.
#[cube(launch)]
pub(super) fn backward<F: Float>(
    y: &[F],
    dy: &[F],
    dx: &mut [F],
    cap: f32,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dx.len() {
        terminate!();
    }
    let share = f32::cast_from(y[ABSOLUTE_POS]) / cap;
    let slope = 1.0 - share * share;
    dx[ABSOLUTE_POS] = F::cast_from(f32::cast_from(dy[ABSOLUTE_POS]) * slope);
}
