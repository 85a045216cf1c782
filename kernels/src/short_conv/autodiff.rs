use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{ShortConvKernel, ShortConvOps};

#[derive(Debug)]
struct ShortConvBackward;

impl<B: ShortConvKernel> Backward<B, 2> for ShortConvBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (x, weight, segment_ids) = ops.state;
        let (dx, dweight) = B::backward(x, weight, segment_ids, grad);
        for (parent, grad) in ops.parents.into_iter().zip([dx, dweight]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, grad);
            }
        }
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
