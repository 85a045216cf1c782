use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{PermuteKernel, PermuteOps, RowIds};
use crate::graph::propagate;

#[derive(Debug)]
struct DispatchBackward;

impl<B: PermuteKernel> Backward<B, 1> for DispatchBackward {
    type State = RowIds<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 1>(ops, grads, |ids, grad| [B::dispatch_backward(ids, grad)]);
    }
}

#[derive(Debug)]
struct CombineBackward;

impl<B: PermuteKernel> Backward<B, 2> for CombineBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, RowIds<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 2>(ops, grads, |(y, weights, ids), grad| {
            B::combine_backward(y, weights, ids, grad).into()
        });
    }
}

impl<B: PermuteKernel, C: CheckpointStrategy> PermuteOps for Autodiff<B, C> {
    fn dispatch_rows(
        x: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let ids = RowIds { row_of, assignment_of };
        let out = B::dispatch(x, ids.clone());
        match DispatchBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(ids, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn combine_rows(
        y: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let ((y, y_node), (weights, weights_node)) = (y.into_parts(), weights.into_parts());
        let ids = RowIds { row_of, assignment_of };
        let out = B::combine(y.clone(), weights.clone(), ids.clone());
        match CombineBackward.prepare::<C>([y_node, weights_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((y, weights, ids), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
