use cubecl::prelude::*;

use crate::cube::units::sum_of_units;

/// The sums of squares of blocks of each matrix of `len` values; a cube for each block.
#[cube(launch)]
pub(crate) fn squares<U: Float>(
    u: &[U],
    squares: &mut [f32],
    len: usize,
    #[comptime] block: usize,
    #[comptime] units: usize,
    #[define(U)] _dtype: ElemType,
) {
    if CUBE_POS >= squares.len() {
        terminate!();
    }
    let blocks = len.div_ceil(block);
    let matrix = CUBE_POS / blocks * len;
    let first = CUBE_POS % blocks * block;
    let end = min(first + block, len);
    let mut sum = 0.0f32;
    for i in range_stepped(matrix + first + UNIT_POS as usize, matrix + end, units) {
        let value = f32::cast_from(u[i]);
        sum += value * value;
    }
    let sum = sum_of_units(sum, units);
    if UNIT_POS == 0 {
        squares[CUBE_POS] = sum;
    }
}

/// `x = u / (|u| + eps)` for each matrix of `len` vectors; a unit for each vector.
#[cube(launch)]
pub(crate) fn divide<U: Float, X: Float, N: Size>(
    u: &[Vector<U, N>],
    squares: &[f32],
    x: &mut [Vector<X, N>],
    len: usize,
    eps: f32,
    #[define(U, X)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= x.len() {
        terminate!();
    }
    let norm = squares[ABSOLUTE_POS / len].sqrt() + eps;
    let value = Vector::<f32, N>::cast_from(u[ABSOLUTE_POS]) / Vector::new(norm);
    x[ABSOLUTE_POS] = Vector::cast_from(value);
}

/// `out = alpha out + beta other`, each term rounded to the type of the values as by operations of
/// their own; a unit for each vector.
#[cube(launch)]
pub(crate) fn add<F: Float, N: Size>(
    out: &mut [Vector<F, N>],
    other: &[Vector<F, N>],
    alpha: f32,
    beta: f32,
    len: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= len {
        terminate!();
    }
    let first = rounded::<F, N>(out[ABSOLUTE_POS], alpha);
    let second = rounded::<F, N>(other[ABSOLUTE_POS], beta);
    out[ABSOLUTE_POS] = Vector::cast_from(first + second);
}

/// `factor values` in f32 after rounding.
#[cube]
fn rounded<F: Float, N: Size>(values: Vector<F, N>, factor: f32) -> Vector<f32, N> {
    let product = Vector::<f32, N>::cast_from(values) * Vector::new(factor);
    Vector::cast_from(Vector::<F, N>::cast_from(product))
}
