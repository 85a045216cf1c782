use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{SequenceBalanceKernel, SequenceBalanceOps};
use crate::graph::propagate;

#[derive(Debug)]
struct SequenceBalanceBackward;

impl<B: SequenceBalanceKernel> Backward<B, 1> for SequenceBalanceBackward {
    type State = (FloatTensor<B>, IntTensor<B>, IntTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 1>(ops, grads, |(logits, selected, token_valid, seq_len), grad| {
            [B::backward(logits, selected, token_valid, seq_len, grad)]
        });
    }
}

impl<B: SequenceBalanceKernel, C: CheckpointStrategy> SequenceBalanceOps for Autodiff<B, C> {
    fn sequence_balance(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        token_valid: IntTensor<Self>,
        seq_len: usize,
    ) -> FloatTensor<Self> {
        let (logits, node) = logits.into_parts();
        let out = B::forward(logits.clone(), selected.clone(), token_valid.clone(), seq_len);
        match SequenceBalanceBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((logits, selected, token_valid, seq_len), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
