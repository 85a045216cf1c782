use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{
    GroupedSwigluInputs, GroupedSwigluKernel, GroupedSwigluOps, GroupedSwigluSaved, Groups,
};
use crate::graph::propagate;

#[derive(Debug)]
struct GroupedSwigluBackward;

impl<B: GroupedSwigluKernel> Backward<B, 4> for GroupedSwigluBackward {
    type State = (GroupedSwigluInputs<B>, Groups, Option<GroupedSwigluSaved<B>>);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 4>(ops, grads, |(inputs, groups, saved), grad| {
            let d = B::backward(inputs, &groups, saved, grad);
            [d.x, d.w_gate, d.w_up, d.w_down]
        });
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
        let inputs = GroupedSwigluInputs { x, w_gate, w_up, w_down };
        let prep = GroupedSwigluBackward.prepare::<C>([x_node, gate_node, up_node, down_node]);
        match prep.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (out, saved) = B::forward_saving(inputs.clone(), &groups);
                prep.finish((inputs, groups, saved), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::forward(inputs, &groups)),
        }
    }
}
