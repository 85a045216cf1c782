//! A value whose backward the caller writes: what gradients pass through on their way.

mod autodiff;

use std::fmt;
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, Flex, backend_extension};
use burn::tensor::Tensor;

/// `value` as a function of `x`: the backward pass gives the gradient of the result to `backward`,
/// and what that returns to `x`. With `None`, `x` gets nothing from here.
///
/// `backward` is called once, when every use of the result has added to its gradient, and not at
/// all if the loss does not depend on the result or `x` is not tracked. It may differentiate a
/// graph of its own.
///
/// It must not hold a tensor of the graph that it is part of, nor use one: a backward pass locks
/// its whole graph, so any use of such a tensor waits for itself.
///
/// # Shapes
/// `x` and `value` any; `backward` gets the shape of `value` and must return that of `x`.
pub fn with_backward<const X: usize, const Y: usize>(
    x: Tensor<X>,
    value: Tensor<Y>,
    backward: impl Fn(Tensor<Y>) -> Option<Tensor<X>> + Send + Sync + 'static,
) -> Tensor<Y> {
    let untracked = value.clone().inner();
    with_backward_after(x, untracked, value, backward)
}

/// As [`with_backward`], for an `x` that is older than `after`.
///
/// A backward pass goes through operations in the reverse of their depth, so it comes to what
/// depends on a leaf alone at its very end. This operation stands behind `after`, which gets no
/// gradient from it: the backward pass comes here before it comes to what made `after`.
pub fn with_backward_after<const X: usize, const A: usize, const Y: usize>(
    x: Tensor<X>,
    after: Tensor<A>,
    value: Tensor<Y>,
    backward: impl Fn(Tensor<Y>) -> Option<Tensor<X>> + Send + Sync + 'static,
) -> Tensor<Y> {
    let pullback = Pullback(Arc::new(move |grad| {
        backward(Tensor::from_dispatch(grad)).map(Tensor::into_dispatch)
    }));
    Tensor::from_dispatch(Dispatch::with_backward(
        x.into_dispatch(),
        after.into_dispatch(),
        value.inner().into_dispatch(),
        pullback,
    ))
}

/// A backward as Burn carries it, of tensors whose ranks the caller knows.
#[derive(Clone)]
pub struct Pullback(Arc<dyn Fn(DispatchTensor) -> Option<DispatchTensor> + Send + Sync>);

impl fmt::Debug for Pullback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pullback")
    }
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait WithBackwardOps: Backend {
    /// See [`with_backward_after`].
    fn with_backward(
        x: FloatTensor<Self>,
        after: FloatTensor<Self>,
        value: FloatTensor<Self>,
        pullback: Pullback,
    ) -> FloatTensor<Self>;
}

macro_rules! ops {
    ($backend:ty) => {
        impl WithBackwardOps for $backend {
            fn with_backward(
                _: FloatTensor<Self>,
                _: FloatTensor<Self>,
                value: FloatTensor<Self>,
                _: Pullback,
            ) -> FloatTensor<Self> {
                value
            }
        }
    };
}

ops!(Flex);
#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
