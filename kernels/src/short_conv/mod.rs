//! Depthwise causal convolution along the sequence that does not cross documents.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// `out[t] = sum over lag of weight[lag] * x[t - lag]`, for each channel on its own.
///
/// A tap before the start of the row, or at a position whose segment id differs from that of `t`,
/// reads 0. `weight[0]` is the tap on the position itself.
///
/// # Shapes
/// `x` [b, s, d], `weight` [taps, d], `segment_ids` [b, s], result [b, s, d].
///
/// # Panics
/// If the shapes disagree or `weight` has no taps.
///
/// # Source
/// SPEC section 2, `ShortConv`.
pub fn short_conv(x: Tensor<3>, weight: Tensor<2>, segment_ids: Tensor<2, Int>) -> Tensor<3> {
    let ([b, s, d], [taps, channels]) = (x.dims(), weight.dims());
    assert!(
        taps > 0 && channels == d,
        "short_conv: `weight` has shape {:?}, needed [taps, {d}] with at least one tap",
        [taps, channels]
    );
    assert!(
        segment_ids.dims() == [b, s],
        "short_conv: `segment_ids` has shape {:?}, needed {:?}",
        segment_ids.dims(),
        [b, s]
    );
    Tensor::from_dispatch(Dispatch::short_conv(
        x.into_dispatch(),
        weight.into_dispatch(),
        segment_ids.into_dispatch(),
    ))
}

/// The meaning of [`short_conv`] in plain tensor operations.
pub fn reference(x: Tensor<3>, weight: Tensor<2>, segment_ids: Tensor<2, Int>) -> Tensor<3> {
    let ([b, s, d], [taps, _]) = (x.dims(), weight.dims());
    let tap = |lag: usize| weight.clone().narrow(0, lag, 1).reshape([1, 1, d]);
    let mut out = x.clone() * tap(0);
    for lag in 1..taps.min(s) {
        let earlier = x.clone().slice([0..b, 0..s - lag]);
        let same_segment = segment_ids
            .clone()
            .slice([0..b, lag..s])
            .equal(segment_ids.clone().slice([0..b, 0..s - lag]));
        let reached = earlier.mask_fill(same_segment.bool_not().unsqueeze_dim::<3>(2), 0.0);
        let before_start = Tensor::zeros([b, lag, d], &x.device());
        out = out + Tensor::cat(vec![before_start, reached], 1) * tap(lag);
    }
    out
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait ShortConvOps: Backend {
    /// See [`short_conv`](self::short_conv()).
    fn short_conv(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
    ) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait ShortConvKernel: Bridge {
    /// The result.
    fn forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(x), Self::lift(weight), Self::lift_int(segment_ids)))
    }

    /// The gradients of `x` and `weight` for the gradient of the result.
    fn backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (x, weight) = (leaf::<Self, 3>(x), leaf::<Self, 2>(weight));
        let segment_ids = Tensor::from_inner(Self::lift_int(segment_ids));
        let out = reference(x.clone(), weight.clone(), segment_ids);
        let grads = differentiate::<Self, _>(out, grad);
        (gradient::<Self, 3>(&x, &grads), gradient::<Self, 2>(&weight, &grads))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl ShortConvOps for $backend {
            fn short_conv(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                segment_ids: IntTensor<Self>,
            ) -> FloatTensor<Self> {
                <Self as ShortConvKernel>::forward(x, weight, segment_ids)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
