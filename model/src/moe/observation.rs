//! What a layer's router did with the tokens of one micro-batch.

use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::margins::Margins;
use fulmar_kernels::routing_statistics::routing_statistics;

use super::router::Routing;
use super::stats::RoutingStats;

/// A router's decisions in training, which tokens they count for, and what they add up to.
///
/// Scores stay on their device: what is on the host here is a few values for each expert.
#[derive(Debug, Clone)]
pub struct Observation<'a> {
    /// The decision for every token.
    pub routing: &'a Routing,
    /// `[t]`, 0 for padding, beside the scores.
    pub token_valid: Tensor<1, Int>,
    /// Sums over the valid tokens.
    pub stats: RoutingStats,
    /// The least and the greatest margin of a valid token: both NaN if one is not finite, infinity
    /// and its negative if there is none.
    pub margin_bounds: [f32; 2],
}

impl<'a> Observation<'a> {
    /// Sums up the routing of the valid tokens.
    ///
    /// # Panics
    /// If the routing's shapes and `token_valid` disagree.
    pub fn new(routing: &'a Routing, token_valid: &[bool]) -> Self {
        let valid: Vec<i32> = token_valid.iter().map(|valid| i32::from(*valid)).collect();
        let device = routing.selected.device();
        let token_valid = Tensor::from_data(TensorData::from(&valid[..]), &device);
        let Routing { logits, selected, alpha, .. } = routing.clone();
        let found = routing_statistics(logits, selected, alpha, token_valid.clone());
        let stats = RoutingStats {
            tokens: found.tokens,
            expert_counts: found.expert_counts,
            probability_sums: found.probability_sums,
            z_sum: found.z_sum,
        };
        Self { routing, token_valid, stats, margin_bounds: found.margin_bounds }
    }

    /// The margins of the valid tokens.
    pub fn margins(&self) -> LayerMargins {
        let Routing { logits, alpha, .. } = self.routing.clone();
        LayerMargins {
            margins: Margins::new(logits, alpha, self.token_valid.clone()),
            tokens: self.stats.tokens,
            bounds: self.margin_bounds,
        }
    }
}

/// The margins of one layer over some tokens, on the device of the scores: the unbiased score less
/// the best biased score that was not chosen.
#[derive(Debug, Clone)]
pub struct LayerMargins {
    pub(super) margins: Margins,
    /// Valid tokens.
    pub(super) tokens: u64,
    /// As [`Observation::margin_bounds`].
    pub(super) bounds: [f32; 2],
}
