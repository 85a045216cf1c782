//! What a tracked call keeps, and what it does when the gradient comes back.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{SoftCapKernel, SoftCapOps};

#[derive(Debug)]
struct SoftCapBackward;

impl<B: SoftCapKernel> Backward<B, 1> for SoftCapBackward {
    /// The result and the cap.
    type State = (FloatTensor<B>, f32);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (y, cap) = ops.state;
        let dy = grads.consume::<B>(&ops.node);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::backward(y, dy, cap));
        }
    }
}

impl<B: SoftCapKernel, C: CheckpointStrategy> SoftCapOps for Autodiff<B, C> {
    fn soft_cap(x: FloatTensor<Self>, cap: f32) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let y = B::forward(x, cap);
        match SoftCapBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((y.clone(), cap), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
