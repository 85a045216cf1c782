use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{RmsNormKernel, RmsNormOps};

#[derive(Debug)]
struct RmsNormBackward;

impl<B: RmsNormKernel> Backward<B, 2> for RmsNormBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (x, gain, eps) = ops.state;
        let (dx, dgain) = B::backward(x, gain, eps, grad);
        for (parent, grad) in ops.parents.into_iter().zip([dx, dgain]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, grad);
            }
        }
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
