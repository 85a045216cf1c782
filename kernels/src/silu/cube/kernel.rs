use cubecl::prelude::*;

use crate::cube::values::sigmoids;

/// A unit for each vector.
#[cube(launch)]
pub(crate) fn forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let x = Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = Vector::cast_from(x * sigmoids::<N>(x));
}

/// With s = sigmoid(x), `dx = dy s (1 + x (1 - s))`; a unit for each vector.
#[cube(launch)]
pub(crate) fn backward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    dx: &mut [Vector<F, N>],
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= dx.len() {
        terminate!();
    }
    let x = Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
    let grad = Vector::<f32, N>::cast_from(grad[ABSOLUTE_POS]);
    let s = sigmoids::<N>(x);
    let one = Vector::new(1.0);
    dx[ABSOLUTE_POS] = Vector::cast_from(grad * s * (one + x * (one - s)));
}
