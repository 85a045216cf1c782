use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{AttentionInputs, AttentionKernel, AttentionOps, AttentionOptions, AttentionSaved};
use crate::graph::propagate;

#[derive(Debug)]
struct AttentionBackward;

impl<B: AttentionKernel> Backward<B, 3> for AttentionBackward {
    type State = (AttentionInputs<B>, AttentionOptions, Option<AttentionSaved<B>>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 3>(ops, grads, |(inputs, options, saved), grad| {
            B::backward(inputs, &options, saved, grad)
        });
    }
}

impl<B: AttentionKernel, C: CheckpointStrategy> AttentionOps for Autodiff<B, C> {
    fn attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        let ((q, q_node), (k, k_node), (v, v_node)) =
            (q.into_parts(), k.into_parts(), v.into_parts());
        let inputs = AttentionInputs { q, k, v, segment_ids };
        let prep = AttentionBackward.prepare::<C>([q_node, k_node, v_node]);
        match prep.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (out, saved) = B::forward_saving(inputs.clone(), &options);
                prep.finish((inputs, options, saved), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::forward(inputs, &options)),
        }
    }
}
