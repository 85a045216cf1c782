//! The weights with which a token sums the outputs of its experts.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Int, Tensor};

pub(crate) use autodiff::CombineWeightsBackward;
pub(crate) use check::checks;
pub(crate) use cpu::weigh;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// Keeps the weights finite where every chosen sigmoid is zero.
pub(crate) const EPSILON: f64 = 1e-9;

/// `sum * s_j / (sum over j of s_j + 1e-9)` with `s_j = sigmoid(logits[t, selected[t, j]])`.
/// A slot with id -1 has weight 0, no part in the sum and no gradient.
///
/// # Shapes
/// `logits` [t, e], `selected` [t, k], result [t, k].
///
/// # Panics
/// If `selected` does not have a row for each row of `logits`; on a CPU also if an id is outside
/// -1 to e - 1. Other backends read such an id as -1.
///
/// # Source
/// SPEC section 2, routed experts, item 3; the recipe's `sum` is 2.5.
pub fn combine_weights(logits: Tensor<2>, selected: Tensor<2, Int>, sum: f64) -> Tensor<2> {
    let ([t, _], [found, _]) = (logits.dims(), selected.dims());
    assert_eq!(found, t, "combine_weights: `selected` has {found} rows, needed {t} as in `logits`");
    Tensor::from_dispatch(Dispatch::combine_weights(
        logits.into_dispatch(),
        selected.into_dispatch(),
        sum,
    ))
}

/// The meaning of [`combine_weights`](self::combine_weights()) in plain tensor operations.
pub fn reference(logits: Tensor<2>, selected: Tensor<2, Int>, sum: f64) -> Tensor<2> {
    let [_, e] = logits.dims();
    let none =
        selected.clone().lower_elem(0).bool_or(selected.clone().greater_equal_elem(e as i64));
    let s = sigmoid(logits.gather(1, selected.mask_fill(none.clone(), 0))).mask_fill(none, 0.0);
    let total = s.clone().sum_dim(1).add_scalar(EPSILON);
    s.mul_scalar(sum) / total
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

    /// The gradient of `logits`, zero where not selected, for the gradient of the result.
    fn backward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let logits = leaf::<Self, 2>(logits);
        let out = reference(logits.clone(), Self::lift_int(selected), sum);
        let grads = differentiate::<Self, _>(out, grad);
        gradient::<Self, 2>(&logits, &grads)
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl CombineWeightsOps for $backend {
            fn combine_weights(
                logits: FloatTensor<Self>,
                selected: IntTensor<Self>,
                sum: f64,
            ) -> FloatTensor<Self> {
                <Self as CombineWeightsKernel>::forward(logits, selected, sum)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
