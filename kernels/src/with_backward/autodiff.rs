use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::{Pullback, WithBackwardOps};
use crate::bridge::Bridge;

#[derive(Debug)]
struct CallersBackward;

/// The second parent only says when: it gets no gradient.
impl<B: Bridge> Backward<B, 2> for CallersBackward {
    type State = Pullback;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        // A dispatched tensor has no rank in its type; any will do on the way through.
        let grad = (ops.state.0)(B::lift::<1>(grad).into_dispatch());
        let [x, _] = ops.parents;
        if let (Some(x), Some(grad)) = (x, grad) {
            grads.register::<B>(x.id, B::lower(Tensor::<1>::from_dispatch(grad)));
        }
    }
}

impl<B: Bridge + WithBackwardOps, C: CheckpointStrategy> WithBackwardOps for Autodiff<B, C> {
    fn with_backward(
        x: FloatTensor<Self>,
        after: FloatTensor<Self>,
        value: FloatTensor<Self>,
        pullback: Pullback,
    ) -> FloatTensor<Self> {
        let nodes = [x.into_parts().1, after.into_parts().1];
        let value = value.into_primitive();
        match CallersBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(pullback, value),
            OpsKind::UnTracked(prep) => prep.finish(value),
        }
    }
}
