use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{GroupedSwigluKernel, GroupedSwigluOps, Groups, Inputs, PreActivations};

#[derive(Debug)]
struct GroupedSwigluBackward;

impl<B: GroupedSwigluKernel> Backward<B, 4> for GroupedSwigluBackward {
    type State = (Inputs<B>, Option<PreActivations<B>>, Groups);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (inputs, saved, groups) = ops.state;
        let d = B::backward(inputs, saved, &groups, grad);
        for (parent, grad) in ops.parents.into_iter().zip([d.x, d.w_gate, d.w_up, d.w_down]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, grad);
            }
        }
    }
}

impl<B: GroupedSwigluKernel, C: CheckpointStrategy> GroupedSwigluOps for Autodiff<B, C> {
    fn grouped_swiglu(
        x: FloatTensor<Self>,
        w_gate: FloatTensor<Self>,
        w_up: FloatTensor<Self>,
        w_down: FloatTensor<Self>,
        groups: Groups,
    ) -> FloatTensor<Self> {
        let ((x, x_node), (w_gate, gate_node)) = (x.into_parts(), w_gate.into_parts());
        let ((w_up, up_node), (w_down, down_node)) = (w_up.into_parts(), w_down.into_parts());
        let inputs = Inputs { x, w_gate, w_up, w_down };
        let prep = GroupedSwigluBackward.prepare::<C>([x_node, gate_node, up_node, down_node]);
        match prep.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (out, saved) = B::forward(inputs.clone(), &groups, true);
                prep.finish((inputs, saved, groups), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::forward(inputs, &groups, false).0),
        }
    }
}
