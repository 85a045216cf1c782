use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{SiluKernel, SiluOps};

#[derive(Debug)]
struct SiluBackward;

impl<B: SiluKernel> Backward<B, 1> for SiluBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [parent] = ops.parents;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::backward(ops.state, grad));
        }
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
