//! Functions of kernels on single values.

use cubecl::prelude::*;

/// `1 / (1 + exp(-x))`; the exponent is never positive, so that nothing overflows.
#[cube]
pub(crate) fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let s = 1.0 / (1.0 + e);
    select(x >= 0.0, s, e * s)
}

/// [`sigmoid`] of each value of a vector.
#[cube]
pub(crate) fn sigmoids<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let mut s = Vector::<f32, N>::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        s.insert(lane, sigmoid(x.extract(lane)));
    }
    s
}

/// Whether a value is neither NaN nor infinite; its bits are asked, since a compiler of shaders may
/// take for granted that all values are finite.
#[cube]
pub(crate) fn is_finite(x: f32) -> bool {
    u32::reinterpret(x) & 0x7F80_0000u32 != 0x7F80_0000u32
}

/// Whether an id points to one of `bound` places.
#[cube]
pub(crate) fn in_bounds(id: i32, bound: usize) -> bool {
    id >= 0 && (id as usize) < bound
}

/// The sum of the values of a vector.
#[cube]
pub(crate) fn sum_of_lanes<N: Size>(values: Vector<f32, N>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..N::value() {
        sum += values.extract(lane);
    }
    sum
}
