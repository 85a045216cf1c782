//! The weights with which a token adds up the outputs of its experts.

mod autodiff;
mod cpu;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Int, Tensor};

use crate::bridge::{Bridge, gradient, leaf};

/// Keeps the division defined for a token without experts.
const EPSILON: f32 = 1e-9;

/// `sum * s_j / (sum over j of s_j + 1e-9)` with `s_j` the sigmoid of the logit of the jth
/// selected expert. An id of -1 (no expert) has weight 0 and no gradient.
///
/// # Shapes
/// `logits` [tokens, experts], `selected` [tokens, k], result [tokens, k].
///
/// # Panics
/// If the tokens differ; on the CPU also if an id is neither -1 nor an expert.
///
/// # Source
/// SPEC section 2, routed experts, item 3 (where `sum` is 2.5).
pub fn combine_weights(logits: Tensor<2>, selected: Tensor<2, Int>, sum: f64) -> Tensor<2> {
    let ([rows, _], found) = (logits.dims(), selected.dims());
    assert!(
        found[0] == rows,
        "combine_weights: `selected` has shape {found:?}, needed [{rows}, k] as `logits`"
    );
    Tensor::from_dispatch(Dispatch::combine_weights(
        logits.into_dispatch(),
        selected.into_dispatch(),
        sum,
    ))
}

/// The meaning of [`combine_weights`](self::combine_weights()) in plain tensor operations.
pub fn reference(logits: Tensor<2>, selected: Tensor<2, Int>, sum: f64) -> Tensor<2> {
    let none = selected.clone().lower_elem(0);
    let s = sigmoid(logits.gather(1, selected.clamp_min(0))).mask_fill(none, 0.0);
    let total = s.clone().sum_dim(1).add_scalar(EPSILON);
    (s / total).mul_scalar(sum)
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait CombineWeightsOps: Backend {
    /// See [`combine_weights`](self::combine_weights()).
    fn combine_weights(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
    ) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait CombineWeightsKernel: Bridge {
    /// The result.
    fn forward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
    ) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(logits), Self::lift_int(selected), sum))
    }

    /// The gradient of `logits` for the gradient of the result.
    fn backward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let logits = leaf::<Self, 2>(logits);
        let out = reference(logits.clone(), Self::lift_int(selected), sum);
        let grads = (out * Tensor::from_inner(Self::lift(grad))).sum().backward();
        gradient::<Self, 2>(&logits, &grads)
    }
}

impl CombineWeightsOps for Flex {
    fn combine_weights(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
    ) -> FloatTensor<Self> {
        <Self as CombineWeightsKernel>::forward(logits, selected, sum)
    }
}

#[cfg(feature = "cube")]
mod cube {
    use super::*;
    use burn_cubecl::CubeBackend;

    impl CombineWeightsKernel for CubeBackend {}

    impl CombineWeightsOps for CubeBackend {
        fn combine_weights(
            logits: FloatTensor<Self>,
            selected: IntTensor<Self>,
            sum: f64,
        ) -> FloatTensor<Self> {
            <Self as CombineWeightsKernel>::forward(logits, selected, sum)
        }
    }
}
