//! How many assignments each shard has for each expert.

use rayon::prelude::*;

use super::choices::Choices;

/// Valid assignments by source shard and expert; their order is forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    num_experts: usize,
    local_experts: usize,
    /// `[source, expert]`.
    counts: Vec<u64>,
    /// All assignments, padding included.
    assignments: u64,
}

impl Demand {
    /// Counts the choices.
    pub fn of(choices: &Choices) -> Self {
        let world = choices.world();
        let mut counts = vec![0; world.shards * world.num_experts];
        counts.par_chunks_mut(world.num_experts).enumerate().for_each(|(shard, counts)| {
            choices.for_each_valid(shard, |expert| counts[expert] += 1);
        });
        Self {
            num_experts: world.num_experts,
            local_experts: world.local_experts(),
            counts,
            assignments: choices.assignments_per_shard() * world.shards as u64,
        }
    }

    /// All assignments of all shards, padding included.
    pub fn assignments(&self) -> u64 {
        self.assignments
    }

    /// Valid assignments of all shards.
    pub fn valid_all(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Valid assignments of one shard's tokens.
    pub fn valid_at(&self, source: usize) -> u64 {
        self.from(source).iter().sum()
    }

    /// Valid assignments of one shard's tokens for each expert.
    pub fn from(&self, source: usize) -> &[u64] {
        &self.counts[source * self.num_experts..][..self.num_experts]
    }

    /// Shards.
    pub fn shards(&self) -> usize {
        self.counts.len() / self.num_experts
    }

    /// The experts of a shard.
    pub(super) fn experts_of(&self, shard: usize) -> std::ops::Range<usize> {
        shard * self.local_experts..(shard + 1) * self.local_experts
    }
}
