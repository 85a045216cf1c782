use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{Parts, PermuteKernel, PermuteOps, RowIds};
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

/// The parents are the parts, then the weights.
impl<B: PermuteKernel, const N: usize> Backward<B, N> for CombineBackward {
    type State = (Vec<FloatTensor<B>>, FloatTensor<B>, RowIds<B>);

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, N>(ops, grads, |(parts, weights, ids), grad| {
            let (mut gradients, dweights) = B::combine_backward(parts, weights, ids, grad);
            gradients.push(dweights);
            gradients.try_into().expect("a gradient for each parent")
        });
    }
}

fn combine<B: PermuteKernel, C: CheckpointStrategy, const N: usize>(
    parts: Vec<FloatTensor<Autodiff<B, C>>>,
    weights: FloatTensor<Autodiff<B, C>>,
    ids: RowIds<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let (weights, weights_node) = weights.into_parts();
    let (parts, mut nodes): (Vec<_>, Vec<_>) =
        parts.into_iter().map(|part| part.into_parts()).unzip();
    nodes.push(weights_node);
    let Ok(nodes) = nodes.try_into() else { unreachable!("N is one more than the parts") };
    let out = B::combine(parts.clone(), weights.clone(), ids.clone());
    match Backward::<B, N>::prepare::<C>(CombineBackward, nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((parts, weights, ids), out),
        OpsKind::UnTracked(prep) => prep.finish(out),
    }
}

impl<B: PermuteKernel, C: CheckpointStrategy> PermuteOps for Autodiff<B, C> {
    fn dispatch_rows(
        x: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
    ) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let ids = RowIds { row_of, assignment_of, checked };
        let out = B::dispatch(x, ids.clone());
        match DispatchBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(ids, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn combine_rows(
        parts: Parts<Self>,
        weights: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
    ) -> FloatTensor<Self> {
        let ids = RowIds { row_of, assignment_of, checked };
        let parts = parts.into_vec();
        match parts.len() {
            1 => combine::<B, C, 2>(parts, weights, ids),
            2 => combine::<B, C, 3>(parts, weights, ids),
            3 => combine::<B, C, 4>(parts, weights, ids),
            _ => combine::<B, C, 5>(parts, weights, ids),
        }
    }
}
