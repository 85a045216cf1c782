//! What one layer did in a step, over all micro-batches and ranks.

use fulmar_ep::transport::Group;
use fulmar_ep::{DispatchCounts, DispatchReport, WireBytes};
use fulmar_model::moe::RoutingStats;

use crate::error::TrainError;

/// One layer over the whole step.
#[derive(Debug, Clone)]
pub struct LayerReport {
    /// The fate of its assignments.
    pub counts: DispatchCounts,
    /// The same by the rank whose tokens they were.
    pub counts_by_rank: Vec<DispatchCounts>,
    /// Valid tokens that lost 0, 1, .. k of their experts.
    pub tokens_by_lost: Vec<u64>,
    /// Bytes that left ranks for others, forward and backward.
    pub wire: WireBytes,
    /// Loads and diagnostics.
    pub routing: RoutingStats,
}

impl LayerReport {
    /// One micro-batch of one rank, after its backward pass.
    pub(crate) fn of_micro_batch(dispatch: &DispatchReport, routing: RoutingStats) -> Self {
        Self {
            counts: dispatch.counts,
            counts_by_rank: Vec::new(),
            tokens_by_lost: dispatch.tokens_by_lost.clone(),
            wire: dispatch.wire.bytes(),
            routing,
        }
    }

    /// Adds another micro-batch of the same rank.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        self.wire += other.wire;
        self.routing.add(&other.routing);
        for (sum, tokens) in self.tokens_by_lost.iter_mut().zip(&other.tokens_by_lost) {
            *sum += tokens;
        }
    }

    /// Each layer over all ranks, from what every rank found; the counts must add up on each.
    ///
    /// # Errors
    /// If a peer is lost, or assignments were lost or invented.
    pub(crate) fn over_ranks(
        mut layers: Vec<Self>,
        ranks: &Group,
    ) -> Result<Vec<Self>, TrainError> {
        let own: Vec<u64> = layers.iter().flat_map(Self::numbers).collect();
        let all = ranks.gather_u64("layer counts", &own)?;
        for layer in &mut layers {
            layer.counts = DispatchCounts::default();
            layer.wire = WireBytes::default();
            layer.tokens_by_lost.fill(0);
        }
        for of_rank in all {
            let mut numbers = of_rank.into_iter();
            for layer in &mut layers {
                layer.take_rank(&mut numbers)?;
            }
        }
        let routing = layers.iter().map(|layer| layer.routing.clone()).collect();
        let routing = RoutingStats::over_ranks(routing, ranks)?;
        layers.iter_mut().zip(routing).for_each(|(layer, routing)| layer.routing = routing);
        Ok(layers)
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers = self.counts.to_array().to_vec();
        numbers.extend([self.wire.payload, self.wire.header]);
        numbers.extend(&self.tokens_by_lost);
        numbers
    }

    /// Adds one rank's numbers, in the order of [`numbers`](Self::numbers).
    fn take_rank(&mut self, numbers: &mut impl Iterator<Item = u64>) -> Result<(), TrainError> {
        let mut next = || numbers.next().expect("every rank has the same layers");
        let counts = DispatchCounts::from_array(std::array::from_fn(|_| next())).check()?;
        self.counts += counts;
        self.counts_by_rank.push(counts);
        self.wire += WireBytes { payload: next(), header: next() };
        self.tokens_by_lost.iter_mut().for_each(|tokens| *tokens += next());
        Ok(())
    }
}
