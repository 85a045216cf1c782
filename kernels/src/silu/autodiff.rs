use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{SiluKernel, SiluOps};
use crate::graph::propagate;

#[derive(Debug)]
struct SiluBackward;

impl<B: SiluKernel> Backward<B, 1> for SiluBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 1>(ops, grads, |x, grad| [B::backward(x, grad)]);
    }
}

impl<B: SiluKernel, C: CheckpointStrategy> SiluOps for Autodiff<B, C> {
    fn silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let out = B::forward(x.clone());
        match SiluBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(x, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
