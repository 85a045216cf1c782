//! The activation `x sigmoid(x)`.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// `x sigmoid(x)`.
///
/// # Shapes
/// `x` [rows, dim], result the same.
///
/// # Source
/// SPEC section 2, `GatedNorm`.
pub fn silu(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::silu(x.into_dispatch()))
}

/// The meaning of [`silu`] in plain tensor operations.
pub fn reference(x: Tensor<2>) -> Tensor<2> {
    burn::tensor::activation::silu(x)
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait SiluOps: Backend {
    /// See [`silu`](self::silu()).
    fn silu(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait SiluKernel: Bridge {
    /// The result.
    fn forward(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(x)))
    }

    /// The gradient of `x` for the gradient of the result.
    fn backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = leaf::<Self, 2>(x);
        let out = reference(x.clone());
        let grads = differentiate::<Self, _>(out, grad);
        gradient::<Self, 2>(&x, &grads)
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl SiluOps for $backend {
            fn silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
                <Self as SiluKernel>::forward(x)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
