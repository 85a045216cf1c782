use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{Activation, GatedKernel, GatedOps};
use crate::graph::propagate;

#[derive(Debug)]
struct GatedBackward;

impl<B: GatedKernel> Backward<B, 2> for GatedBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, Activation);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 2>(ops, grads, |(value, gate, activation), grad| {
            B::backward(value, gate, activation, grad).into()
        });
    }
}

impl<B: GatedKernel, C: CheckpointStrategy> GatedOps for Autodiff<B, C> {
    fn gated(
        value: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let ((value, value_node), (gate, gate_node)) = (value.into_parts(), gate.into_parts());
        let out = B::forward(value.clone(), gate.clone(), activation);
        match GatedBackward.prepare::<C>([value_node, gate_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((value, gate, activation), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
