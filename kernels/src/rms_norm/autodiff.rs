use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{RmsNormKernel, RmsNormOps};
use crate::graph::propagate;

#[derive(Debug)]
struct RmsNormBackward;

impl<B: RmsNormKernel> Backward<B, 2> for RmsNormBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 2>(ops, grads, |(x, gain, eps), grad| {
            B::backward(x, gain, eps, grad).into()
        });
    }
}

impl<B: RmsNormKernel, C: CheckpointStrategy> RmsNormOps for Autodiff<B, C> {
    fn rms_norm(x: FloatTensor<Self>, gain: FloatTensor<Self>, eps: f64) -> FloatTensor<Self> {
        let ((x, x_node), (gain, gain_node)) = (x.into_parts(), gain.into_parts());
        let out = B::forward(x.clone(), gain.clone(), eps);
        match RmsNormBackward.prepare::<C>([x_node, gain_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, gain, eps), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
