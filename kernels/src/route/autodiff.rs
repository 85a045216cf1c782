use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend};

use super::{Parts, RouteKernel, RouteOps};
use crate::combine_weights::CombineWeightsBackward;

impl<B: RouteKernel, C: CheckpointStrategy> RouteOps for Autodiff<B, C> {
    fn route(
        logits: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        k: usize,
        sum: f64,
    ) -> Parts<Self> {
        let (logits, node) = logits.into_parts();
        let (selected, weights, alpha) =
            <B as RouteKernel>::forward(logits.clone(), bias.into_primitive(), k, sum);
        let weights = match CombineWeightsBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((logits, selected.clone(), sum), weights),
            OpsKind::UnTracked(prep) => prep.finish(weights),
        };
        (selected, weights, Self::from_inner(alpha))
    }
}
