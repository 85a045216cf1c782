use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{CombineWeightsKernel, CombineWeightsOps};
use crate::graph::propagate;

/// From the logits and the choice, whatever chose.
#[derive(Debug)]
pub(crate) struct CombineWeightsBackward;

impl<B: CombineWeightsKernel> Backward<B, 1> for CombineWeightsBackward {
    type State = (FloatTensor<B>, IntTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 1>(ops, grads, |(logits, selected, sum), grad| {
            [B::backward(logits, selected, sum, grad)]
        });
    }
}

impl<B: CombineWeightsKernel, C: CheckpointStrategy> CombineWeightsOps for Autodiff<B, C> {
    fn combine_weights(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        sum: f64,
    ) -> FloatTensor<Self> {
        let (logits, node) = logits.into_parts();
        let out = B::forward(logits.clone(), selected.clone(), sum);
        match CombineWeightsBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((logits, selected, sum), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
