//! The nearest orthogonal matrix, approximately, by five Newton-Schulz steps.

mod check;
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod product;
mod transpose;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{DType, Tensor};

pub(crate) use check::checks;

use crate::bridge::Bridge;

/// `(a, b, c)` of each step: they drive every singular value in (0, 1] to about 1.
pub const COEFFICIENTS: [(f64, f64, f64); 5] = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
];

/// Added to the norm that divides the input.
const NORM_EPS: f64 = 1e-8;

/// The arithmetic of the five steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// Operands, and the results of products and sums, are bf16; products add up in f32.
    Bf16,
}

/// For each matrix `x = u / (|u| + 1e-8)` with the Frobenius norm, then five times
/// `A = X X^T`, `X <- a X + (b A + c A^2) X`, on the transpose if a matrix is tall.
///
/// A zero matrix stays zero.
///
/// # Shapes
/// `u` [n, p, q], result [n, p, q].
///
/// # Source
/// SPEC section 4.
pub fn newton_schulz(u: Tensor<3>, precision: Precision) -> Tensor<3> {
    Tensor::from_dispatch(Dispatch::newton_schulz(u.into_dispatch(), precision))
}

/// The meaning of [`newton_schulz`](self::newton_schulz()) in plain tensor operations.
pub fn reference(u: Tensor<3>, precision: Precision) -> Tensor<3> {
    let [_, p, q] = u.dims();
    let tall = p > q;
    let norm = (u.clone() * u.clone()).sum_dim(2).sum_dim(1).sqrt();
    let mut x = u / (norm + NORM_EPS);
    if tall {
        x = x.swap_dims(1, 2);
    }
    if precision == Precision::Bf16 {
        x = x.cast(DType::BF16);
    }
    for (a, b, c) in COEFFICIENTS {
        let gram = x.clone().matmul(x.clone().swap_dims(1, 2));
        let polynomial = gram.clone() * b + gram.clone().matmul(gram) * c;
        x = x.clone() * a + polynomial.matmul(x);
    }
    let x = x.cast(DType::F32);
    if tall { x.swap_dims(1, 2) } else { x }
}

/// The operation as Burn dispatches it; it takes and returns values outside any graph.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait NewtonSchulzOps: Backend {
    /// See [`newton_schulz`](self::newton_schulz()).
    fn newton_schulz(u: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self>;
}

/// What a backend computes; the default is the reference.
pub trait NewtonSchulzKernel: Bridge {
    /// The result.
    fn forward(u: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(u), precision))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl NewtonSchulzOps for $backend {
            fn newton_schulz(u: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
                <Self as NewtonSchulzKernel>::forward(u, precision)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
