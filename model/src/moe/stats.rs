//! What one layer's routing did, as values.

use std::iter::once;

use burn::tensor::Tensor;
use fulmar_ep::DispatchReport;
use fulmar_ep::transport::{Group, TransportError};

use super::Routed;
use super::balance::Balancing;
use super::observation::Observation;
use super::router::Routing;

/// What a layer reports of one micro-batch.
#[derive(Debug, Clone)]
pub struct LayerStats<S> {
    /// The fate of the assignments, and what their exchange cost.
    pub dispatch: DispatchReport,
    /// What only training asks for: load, diagnostics and what balances the next step.
    pub training: Option<(RoutingStats, S)>,
    /// The sequence balance loss of each row `[b]`, tracked, in training with that loss. A model
    /// takes it out and adds up its layers'.
    pub sequence_balance: Option<Tensor<1>>,
}

impl<S> LayerStats<S> {
    pub(crate) fn observe<D, B: Balancing<Stats = S>>(
        routing: &Routing,
        dispatch: DispatchReport,
        routed: &Routed<'_, D, B>,
    ) -> Self {
        let training = routed.balancing.map(|balancing| {
            let observation = Observation::new(routing, routed.demand.token_valid());
            let balance = balancing.observe(&observation);
            (observation.stats, balance)
        });
        Self { dispatch, training, sequence_balance: None }
    }
}

/// Sums over the valid tokens of one layer; sums of several micro-batches add.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutingStats {
    /// Valid tokens.
    pub tokens: u64,
    /// Valid assignments of each expert `[e]`.
    pub expert_counts: Vec<u64>,
    /// Sum over tokens of each expert's share in a softmax of the scores `[e]`.
    pub probability_sums: Vec<f64>,
    /// Sum over tokens of logsumexp(scores)^2.
    pub z_sum: f64,
}

impl RoutingStats {
    /// Adds the sums of other tokens.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.z_sum += other.z_sum;
        for (sum, count) in self.expert_counts.iter_mut().zip(&other.expert_counts) {
            *sum += count;
        }
        for (sum, value) in self.probability_sums.iter_mut().zip(&other.probability_sums) {
            *sum += value;
        }
    }

    /// The sums of each layer over all members of `ranks`, added in their order; every member calls
    /// it with as many layers.
    ///
    /// # Errors
    /// If a peer fails to answer.
    pub fn over_ranks(mut layers: Vec<Self>, ranks: &Group) -> Result<Vec<Self>, TransportError> {
        if ranks.size() == 1 {
            return Ok(layers);
        }
        let counts: Vec<u64> = layers.iter_mut().flat_map(Self::counts).map(|v| *v).collect();
        let counts = ranks.sum_u64("routing counts", &counts)?;
        layers.iter_mut().flat_map(Self::counts).zip(counts).for_each(|(v, sum)| *v = sum);
        let sums: Vec<f64> = layers.iter_mut().flat_map(Self::sums).map(|v| *v).collect();
        let sums = ranks.sum_f64("routing sums", &sums)?;
        layers.iter_mut().flat_map(Self::sums).zip(sums).for_each(|(v, sum)| *v = sum);
        Ok(layers)
    }

    fn counts(&mut self) -> impl Iterator<Item = &mut u64> {
        once(&mut self.tokens).chain(&mut self.expert_counts)
    }

    fn sums(&mut self) -> impl Iterator<Item = &mut f64> {
        once(&mut self.z_sum).chain(&mut self.probability_sums)
    }

    /// Entropy in nats of the distribution of assignments over experts; `ln e` is perfect balance.
    pub fn entropy(&self) -> f64 {
        let total = self.expert_counts.iter().sum::<u64>() as f64;
        let shares = self.expert_counts.iter().filter(|count| **count > 0);
        shares.map(|count| *count as f64 / total).map(|share| -share * share.ln()).sum()
    }

    /// Mean over tokens of logsumexp(scores)^2; logged, never trained on.
    pub fn router_z_loss(&self) -> f64 {
        self.z_sum / self.tokens.max(1) as f64
    }

    /// `e sum_e (share of assignments) (mean softmax share)`: 1 when balanced; logged only.
    pub fn load_balancing_loss(&self) -> f64 {
        let assignments = self.expert_counts.iter().sum::<u64>().max(1) as f64;
        let tokens = self.tokens.max(1) as f64;
        let pairs = self.expert_counts.iter().zip(&self.probability_sums);
        let sum: f64 = pairs.map(|(count, p)| *count as f64 / assignments * p / tokens).sum();
        self.expert_counts.len() as f64 * sum
    }
}
