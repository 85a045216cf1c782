//! `cap tanh(x / cap)`: scores that never leave (-cap, cap), as an operation of one's own.
//!
//! The four parts of every operation in `fulmar-kernels`: the meaning in plain tensor operations
//! ([`reference`]), a CPU kernel (`cpu.rs`), a GPU kernel (`cube.rs`), and a backward written by
//! hand (`autodiff.rs`).

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(test)]
mod tests;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

/// `cap tanh(x / cap)`.
///
/// # Shapes
/// `x` [rows, dim], result the same.
///
/// # Panics
/// Unless `cap` is above 0 and finite.
pub(crate) fn soft_cap(x: Tensor<2>, cap: f64) -> Tensor<2> {
    assert!(cap > 0.0 && cap.is_finite(), "soft_cap: `cap` is {cap}, needed above 0 and finite");
    Tensor::from_dispatch(Dispatch::soft_cap(x.into_dispatch(), cap as f32))
}

/// The meaning of [`soft_cap`] in plain tensor operations; Burn differentiates it by itself.
pub(crate) fn reference(x: Tensor<2>, cap: f64) -> Tensor<2> {
    x.div_scalar(cap).tanh().mul_scalar(cap)
}

/// The operation as Burn dispatches it: the macro writes the impl that looks which backend a tensor
/// lives on. `Cube` is every GPU backend.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub(crate) trait SoftCapOps: Backend {
    /// See [`soft_cap`](self::soft_cap()).
    fn soft_cap(x: FloatTensor<Self>, cap: f32) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes. `Autodiff` asks it for both directions.
pub(crate) trait SoftCapKernel: Backend {
    /// `y`.
    fn forward(x: FloatTensor<Self>, cap: f32) -> FloatTensor<Self>;

    /// The gradient of `x` for the gradient of `y`: `dy (1 - (y / cap)^2)`, which needs no `x`.
    fn backward(y: FloatTensor<Self>, dy: FloatTensor<Self>, cap: f32) -> FloatTensor<Self>;
}

impl SoftCapOps for Flex {
    fn soft_cap(x: FloatTensor<Self>, cap: f32) -> FloatTensor<Self> {
        <Self as SoftCapKernel>::forward(x, cap)
    }
}

#[cfg(feature = "cube")]
impl SoftCapOps for burn_cubecl::CubeBackend {
    fn soft_cap(x: FloatTensor<Self>, cap: f32) -> FloatTensor<Self> {
        <Self as SoftCapKernel>::forward(x, cap)
    }
}
