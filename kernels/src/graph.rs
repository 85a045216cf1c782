//! Between kernels and autodiff graphs: the backward of a tracked kernel, and the backward that a
//! reference body gets from autodiff.

use burn::backend::Backend;
use burn::backend::autodiff::grads::Gradients as NodeGradients;
use burn::backend::autodiff::ops::Ops;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Gradients, Tensor};

use crate::bridge::Bridge;

/// Hands a node's state and gradient to `backward`, and what that returns to the node's parents.
pub(crate) fn propagate<B: Backend, S, const N: usize>(
    ops: Ops<S, N>,
    grads: &mut NodeGradients,
    backward: impl FnOnce(S, FloatTensor<B>) -> [FloatTensor<B>; N],
) {
    let grad = grads.consume::<B>(&ops.node);
    for (parent, grad) in ops.parents.into_iter().zip(backward(ops.state, grad)) {
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, grad);
        }
    }
}

/// A leaf of a fresh graph: the reference backward differentiates the reference forward.
pub(crate) fn leaf<B: Bridge, const D: usize>(primitive: FloatTensor<B>) -> Tensor<D> {
    Tensor::from_inner(B::lift::<D>(primitive)).require_grad()
}

/// The gradients of all leaves of `out`, whose own gradient is `grad`.
pub(crate) fn differentiate<B: Bridge, const D: usize>(
    out: Tensor<D>,
    grad: FloatTensor<B>,
) -> Gradients {
    (out * Tensor::from_inner(B::lift(grad))).sum().backward()
}

/// The gradient of a [`leaf`] that the differentiated value depends on.
pub(crate) fn gradient<B: Bridge, const D: usize>(
    leaf: &Tensor<D>,
    grads: &Gradients,
) -> FloatTensor<B> {
    B::lower(leaf.grad(grads).expect("the reference uses every input"))
}
