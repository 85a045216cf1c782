//! The `k` largest scores of every row and the value that follows them.

mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

pub(crate) use check::checks;
pub(crate) use cpu::Best;
#[cfg(feature = "cube")]
pub(crate) use cube::{
    SCORES_PER_UNIT,
    kernel::{best_of_units, comes_first},
};

use crate::bridge::Bridge;

/// What [`top_k`](self::top_k()) finds; outside every autodiff graph.
#[derive(Debug, Clone)]
pub struct TopK {
    /// The ids of the `k` largest scores of each row [t, k], largest first.
    pub selected: Tensor<2, Int>,
    /// The score that comes after them `[t]`: the (k + 1)th largest of the row.
    pub next: Tensor<1>,
}

/// The ids of the `k` largest scores of each row, largest first, and the (k + 1)th largest score.
/// Of equal scores the one with the lowest id comes first.
///
/// A row in which any score is NaN or infinite has no order to speak of: all its ids are -1 and
/// its `next` is NaN, so that no expert is chosen at random. Nothing is differentiated; a tracked
/// `scores` is taken out of its graph.
///
/// # Shapes
/// `scores` [t, e], `selected` [t, k], `next` `[t]`.
///
/// # Panics
/// Unless 1 <= k < e, since `next` needs a score that was not selected.
///
/// # Source
/// SPEC section 2, routed experts, item 2.
pub fn top_k(scores: Tensor<2>, k: usize) -> TopK {
    let [_, e] = scores.dims();
    assert!(
        (1..e).contains(&k),
        "top_k: `k` is {k}, needed at least 1 and less than the {e} columns of `scores`"
    );
    let (selected, next) = Dispatch::top_k(scores.inner().into_dispatch(), k);
    TopK { selected: Tensor::from_dispatch(selected), next: Tensor::from_dispatch(next) }
}

/// The meaning of [`top_k`](self::top_k()) in plain tensor operations: k + 1 times the maximum,
/// with what was found before taken out.
pub fn reference(scores: Tensor<2>, k: usize) -> TopK {
    let ([t, e], device) = (scores.dims(), scores.device());
    let unordered = scores.clone().is_finite().bool_not().any_dim(1);
    let ids = Tensor::<1, Int>::arange(0..e as i64, &device).reshape([1, e]).expand([t, e]);
    let (mut left, mut selected) = (scores, Vec::with_capacity(k));
    for _ in 0..k {
        let best = left.clone().max_dim(1).expand([t, e]);
        let id = ids.clone().mask_fill(left.clone().lower(best), e as i64).min_dim(1);
        left = left.mask_fill(ids.clone().equal(id.clone().expand([t, e])), f32::NEG_INFINITY);
        selected.push(id);
    }
    let next = left.max_dim(1).mask_fill(unordered.clone(), f32::NAN);
    let selected = Tensor::cat(selected, 1).mask_fill(unordered.expand([t, k]), -1);
    TopK { selected, next: next.reshape([t]) }
}

/// The operation as Burn dispatches it. Without `Autodiff`: it has no gradient.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait TopKOps: Backend {
    /// See [`top_k`](self::top_k()): the ids, then the next score.
    fn top_k(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>);
}

/// What a backend computes; the default is the reference.
pub trait TopKKernel: Bridge {
    /// The ids, then the next score.
    fn forward(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>) {
        let TopK { selected, next } = reference(Self::lift(scores), k);
        (Self::lower_int(selected), Self::lower(next))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl TopKOps for $backend {
            fn top_k(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>) {
                <Self as TopKKernel>::forward(scores, k)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
