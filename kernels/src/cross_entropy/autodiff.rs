use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend};

use super::{CrossEntropyKernel, CrossEntropyOps, HiddenAndHead, Sums};
use crate::graph::propagate;

#[derive(Debug)]
struct CrossEntropyBackward;

impl<B: CrossEntropyKernel> Backward<B, 2> for CrossEntropyBackward {
    /// The gradients for an incoming gradient of 1.
    type State = HiddenAndHead<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 2>(ops, grads, |(dhidden, dhead), grad| {
            let scale = B::lift::<1>(grad).reshape([1, 1]);
            [dhidden, dhead].map(|grad| {
                // The loss may be f32 where hidden states and head are not.
                let grad = B::lift::<2>(grad);
                B::lower(grad.clone() * scale.clone().cast(grad.dtype()))
            })
        });
    }
}

impl<B: CrossEntropyKernel, C: CheckpointStrategy> CrossEntropyOps for Autodiff<B, C> {
    fn cross_entropy(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weight: FloatTensor<Self>,
        z_coefficient: f64,
    ) -> Sums<Self> {
        let ((hidden, hidden_node), (head, head_node)) = (hidden.into_parts(), head.into_parts());
        let weight = weight.into_primitive();
        let nodes = [hidden_node, head_node];
        let (total, cross_entropy, z) =
            match CrossEntropyBackward.prepare::<C>(nodes).compute_bound().stateful() {
                OpsKind::Tracked(prep) => {
                    let ((total, cross_entropy, z), gradients) =
                        B::forward_and_gradients(hidden, head, targets, weight, z_coefficient);
                    (prep.finish(gradients, total), cross_entropy, z)
                }
                OpsKind::UnTracked(prep) => {
                    let (total, cross_entropy, z) =
                        B::forward(hidden, head, targets, weight, z_coefficient);
                    (prep.finish(total), cross_entropy, z)
                }
            };
        (total, Self::from_inner(cross_entropy), Self::from_inner(z))
    }

    fn token_losses(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (nll, log_sum_exp) =
            B::forward_tokens(hidden.into_primitive(), head.into_primitive(), targets);
        (Self::from_inner(nll), Self::from_inner(log_sum_exp))
    }
}
