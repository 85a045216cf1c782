//! The largest scores of every row and the first that did not make it.

mod cpu;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

use crate::bridge::Bridge;

/// What [`top_k`](self::top_k()) chose; outside every autodiff graph.
#[derive(Clone, Debug)]
pub struct TopK {
    /// Column ids of the k largest scores of each row, largest first; [rows, k].
    pub selected: Tensor<2, Int>,
    /// The (k+1)th largest score of each row; [rows].
    pub next: Tensor<1>,
}

/// The k largest scores of every row, and the (k+1)th as a value. Of equal scores the lowest id
/// comes first.
///
/// A row with a score that is not finite has no order to trust: its ids are all -1 and its `next`
/// is NaN, so that no expert is chosen for it by accident. A tracked `scores` is taken by value;
/// nothing flows back.
///
/// # Shapes
/// `scores` [tokens, experts], `selected` [tokens, k], `next` [tokens].
///
/// # Panics
/// If k is 0, or if a row has fewer than k + 1 scores.
///
/// # Source
/// SPEC section 2, routed experts, item 2.
pub fn top_k(scores: Tensor<2>, k: usize) -> TopK {
    check(&scores, k);
    let (selected, next) = Dispatch::top_k(scores.inner().into_dispatch(), k);
    TopK { selected: Tensor::from_dispatch(selected), next: Tensor::from_dispatch(next) }
}

fn check(scores: &Tensor<2>, k: usize) -> [usize; 2] {
    let [rows, columns] = scores.dims();
    assert!(
        k >= 1 && k < columns,
        "top_k: `k` is {k} for `scores` of shape [{rows}, {columns}], needed 1 to {}",
        columns.saturating_sub(1)
    );
    [rows, columns]
}

/// The meaning of [`top_k`](self::top_k()) in plain tensor operations: k + 1 times the maximum.
pub fn reference(scores: Tensor<2>, k: usize) -> TopK {
    let [rows, columns] = check(&scores, k);
    let scores = scores.inner();
    let untrusted = scores.clone().is_finite().bool_not().any_dim(1);
    let mut rest = scores.mask_fill(untrusted.clone().expand([rows, columns]), 0.0);
    let ids = Tensor::<1, Int>::arange(0..columns as i64, &rest.device())
        .unsqueeze::<2>()
        .expand([rows, columns]);
    let mut selected = Vec::with_capacity(k);
    let mut next = rest.clone().max_dim(1);
    for _ in 0..k {
        let smaller = rest.clone().lower(next.expand([rows, columns]));
        let id = ids.clone().mask_fill(smaller, columns as i64).min_dim(1);
        let taken = ids.clone().equal(id.clone().expand([rows, columns]));
        rest = rest.mask_fill(taken, f32::NEG_INFINITY);
        next = rest.clone().max_dim(1);
        selected.push(id);
    }
    let selected = Tensor::cat(selected, 1).mask_fill(untrusted.clone().expand([rows, k]), -1);
    TopK { selected, next: next.mask_fill(untrusted, f32::NAN).squeeze_dim(1) }
}

/// The operation as Burn dispatches it; it has no gradient.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait TopKOps: Backend {
    /// See [`top_k`](self::top_k()).
    fn top_k(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>);
}

/// What a backend computes; the default is the reference.
pub trait TopKKernel: Bridge {
    /// `selected` and `next`.
    fn forward(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>) {
        let out = reference(Self::lift(scores), k);
        (Self::lower_int(out.selected), Self::lower(out.next))
    }
}

impl TopKOps for Flex {
    fn top_k(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>) {
        <Self as TopKKernel>::forward(scores, k)
    }
}

#[cfg(feature = "cube")]
mod cube {
    use super::*;
    use burn_cubecl::CubeBackend;

    impl TopKKernel for CubeBackend {}

    impl TopKOps for CubeBackend {
        fn top_k(scores: FloatTensor<Self>, k: usize) -> (IntTensor<Self>, FloatTensor<Self>) {
            <Self as TopKKernel>::forward(scores, k)
        }
    }
}
