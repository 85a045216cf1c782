//! Root-mean-square normalisation of the last dimension with a gain.

mod autodiff;
mod check;
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// `x / sqrt(mean(x^2) + eps) * gain` over the last dimension.
///
/// # Shapes
/// `x` [rows, dim], `gain` `[dim]`, result [rows, dim].
///
/// # Panics
/// If `gain` is not as long as a row of `x`.
///
/// # Source
/// SPEC section 2, `RMSNorm`.
pub fn rms_norm(x: Tensor<2>, gain: Tensor<1>, eps: f64) -> Tensor<2> {
    assert_eq!(x.dims()[1], gain.dims()[0], "rms_norm: a gain for each column");
    Tensor::from_dispatch(Dispatch::rms_norm(x.into_dispatch(), gain.into_dispatch(), eps))
}

/// The meaning of [`rms_norm`] in plain tensor operations.
pub fn reference(x: Tensor<2>, gain: Tensor<1>, eps: f64) -> Tensor<2> {
    let inverse = (x.clone() * x.clone()).mean_dim(1).add_scalar(eps).sqrt().recip();
    x * inverse * gain.unsqueeze()
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait RmsNormOps: Backend {
    /// See [`rms_norm`](self::rms_norm()).
    fn rms_norm(x: FloatTensor<Self>, gain: FloatTensor<Self>, eps: f64) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait RmsNormKernel: Bridge {
    /// The result.
    fn forward(x: FloatTensor<Self>, gain: FloatTensor<Self>, eps: f64) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(x), Self::lift(gain), eps))
    }

    /// The gradients of `x` and `gain` for the gradient of the result.
    fn backward(
        x: FloatTensor<Self>,
        gain: FloatTensor<Self>,
        eps: f64,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (x, gain) = (leaf::<Self, 2>(x), leaf::<Self, 1>(gain));
        let out = reference(x.clone(), gain.clone(), eps);
        let grads = differentiate::<Self, _>(out, grad);
        (gradient::<Self, 2>(&x, &grads), gradient::<Self, 1>(&gain, &grads))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl RmsNormOps for $backend {
            fn rms_norm(
                x: FloatTensor<Self>,
                gain: FloatTensor<Self>,
                eps: f64,
            ) -> FloatTensor<Self> {
                <Self as RmsNormKernel>::forward(x, gain, eps)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
