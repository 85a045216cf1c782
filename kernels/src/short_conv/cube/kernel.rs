//! Positions count through all rows of `s` positions; a tap reaches another position where that
//! lies in the same row and has the same segment id.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

/// `out[t] = sum over lag of weight[lag] x[t - lag]`; a unit for each vector of a position.
#[cube(launch)]
pub(crate) fn forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    weight: &[Vector<F, N>],
    segment_ids: &[i32],
    out: &mut [Vector<F, N>],
    s: usize,
    d: usize,
    taps: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let (t, column) = (ABSOLUTE_POS / d, ABSOLUTE_POS % d);
    let reach = min(taps, t % s + 1);
    let mut sum = Vector::<f32, N>::new(0.0);
    for lag in 0..reach {
        if segment_ids[t - lag] == segment_ids[t] {
            let tap = Vector::<f32, N>::cast_from(weight[lag * d + column]);
            sum += tap * Vector::cast_from(x[(t - lag) * d + column]);
        }
    }
    out[ABSOLUTE_POS] = Vector::cast_from(sum);
}

/// `dx[t] = sum over lag of weight[lag] dy[t + lag]`; a unit for each vector of a position.
#[cube(launch)]
pub(crate) fn input_gradient<F: Float, N: Size>(
    weight: &[Vector<F, N>],
    segment_ids: &[i32],
    grad: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
    s: usize,
    d: usize,
    taps: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dx.len() {
        terminate!();
    }
    let (t, column) = (ABSOLUTE_POS / d, ABSOLUTE_POS % d);
    let reach = min(taps, s - t % s);
    let mut sum = Vector::<f32, N>::new(0.0);
    for lag in 0..reach {
        if segment_ids[t + lag] == segment_ids[t] {
            let tap = Vector::<f32, N>::cast_from(weight[lag * d + column]);
            sum += tap * Vector::cast_from(grad[(t + lag) * d + column]);
        }
    }
    dx[ABSOLUTE_POS] = Vector::cast_from(sum);
}

/// `sum of x[t - lag] dy[t]` over blocks of positions; a unit for each channel of a tap of a block.
#[cube(launch)]
#[allow(clippy::collapsible_if, reason = "a device evaluates both sides of `&&`")]
pub(crate) fn weight_gradients<F: Float>(
    x: &[F],
    segment_ids: &[i32],
    grad: &[F],
    dweights: &mut [f32],
    positions: usize,
    s: usize,
    d: usize,
    taps: usize,
    #[comptime] row_block: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dweights.len() {
        terminate!();
    }
    let (tap, column) = (ABSOLUTE_POS / d, ABSOLUTE_POS % d);
    let (block, lag) = (tap / taps, tap % taps);
    let first = block * row_block;
    let end = min(first + row_block, positions);
    let mut sum = 0.0f32;
    for t in first..end {
        if lag <= t % s {
            if segment_ids[t - lag] == segment_ids[t] {
                let earlier = f32::cast_from(x[(t - lag) * d + column]);
                sum += earlier * f32::cast_from(grad[t * d + column]);
            }
        }
    }
    dweights[ABSOLUTE_POS] = sum;
}
