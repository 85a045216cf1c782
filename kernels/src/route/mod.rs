//! The experts of every token and their weights, from one pass over the scores.

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
use crate::combine_weights::CombineWeightsKernel;
use crate::{combine_weights, top_k};

/// What [`route`](self::route()) decides.
#[derive(Debug, Clone)]
pub struct Route {
    /// Chosen experts [t, k], best first; -1 in every slot of a token whose biased scores are not
    /// finite.
    pub selected: Tensor<2, Int>,
    /// Weight [t, k] of each chosen expert's output; in the graph of the scores.
    pub combine_weights: Tensor<2>,
    /// The best biased score that was not chosen `[t]`, outside every graph.
    pub alpha: Tensor<1>,
}

/// Chooses the `k` best experts of each token by the biased scores and weighs them by the unbiased:
/// [`top_k`](crate::top_k::top_k()) of `logits + bias`, then
/// [`combine_weights`](crate::combine_weights::combine_weights()) of `logits`, with the same bits.
///
/// The choice has no gradient, and so the bias has none.
///
/// # Shapes
/// `logits` [t, e], `bias` `[e]`; results [t, k] and `[t]`.
///
/// # Panics
/// If `bias` does not have a value for each expert, or unless 1 <= k < e.
///
/// # Source
/// SPEC section 2, routed experts, items 1 to 3; the recipe's `sum` is 2.5.
pub fn route(logits: Tensor<2>, bias: Tensor<1>, k: usize, sum: f64) -> Route {
    let ([_, e], [found]) = (logits.dims(), bias.dims());
    assert_eq!(found, e, "route: `bias` has {found} values, needed {e} as `logits` has columns");
    assert!(
        (1..e).contains(&k),
        "route: `k` is {k}, needed at least 1 and less than the {e} columns of `logits`"
    );
    let (selected, combine_weights, alpha) =
        Dispatch::route(logits.into_dispatch(), bias.inner().into_dispatch(), k, sum);
    Route {
        selected: Tensor::from_dispatch(selected).inner(),
        combine_weights: Tensor::from_dispatch(combine_weights),
        alpha: Tensor::from_dispatch(alpha).inner(),
    }
}

/// The meaning of [`route`](self::route()) in plain tensor operations.
pub fn reference(logits: Tensor<2>, bias: Tensor<1>, k: usize, sum: f64) -> Route {
    let biased = logits.clone().inner() + bias.inner().unsqueeze();
    let top = top_k::reference(biased, k);
    let combine_weights = combine_weights::reference(logits, top.selected.clone(), sum);
    Route { selected: top.selected, combine_weights, alpha: top.next }
}

/// `selected`, `combine_weights` and `alpha` as a backend holds them.
type Parts<B> = (IntTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait RouteOps: Backend {
    /// See [`route`](self::route()): the ids, their weights, the next score.
    fn route(
        logits: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        k: usize,
        sum: f64,
    ) -> (IntTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// What a backend without autodiff computes; the default is the reference. The gradient is that of
/// the weights.
pub trait RouteKernel: Bridge + CombineWeightsKernel {
    /// The ids, their weights, the next score.
    fn forward(
        logits: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        k: usize,
        sum: f64,
    ) -> (IntTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let Route { selected, combine_weights, alpha } =
            reference(Self::lift(logits), Self::lift(bias), k, sum);
        (Self::lower_int(selected), Self::lower(combine_weights), Self::lower(alpha))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl RouteOps for $backend {
            fn route(
                logits: FloatTensor<Self>,
                bias: FloatTensor<Self>,
                k: usize,
                sum: f64,
            ) -> Parts<Self> {
                <Self as RouteKernel>::forward(logits, bias, k, sum)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
