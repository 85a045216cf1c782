use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{ShortConvKernel, ShortConvOps};
use crate::graph::propagate;

#[derive(Debug)]
struct ShortConvBackward;

impl<B: ShortConvKernel> Backward<B, 2> for ShortConvBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 2>(ops, grads, |(x, weight, segment_ids), grad| {
            B::backward(x, weight, segment_ids, grad).into()
        });
    }
}

impl<B: ShortConvKernel, C: CheckpointStrategy> ShortConvOps for Autodiff<B, C> {
    fn short_conv(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let out = B::forward(x.clone(), weight.clone(), segment_ids.clone());
        match ShortConvBackward.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, segment_ids), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
