//! Problems drawn at random, the awkward ones included.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::reference::Problem;

/// What a random problem looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) shards: usize,
    /// Over all shards.
    pub(crate) num_experts: usize,
    /// Experts per token; a token's are distinct.
    pub(crate) k: usize,
    /// Of one shard; each draws its own number from 0 to this.
    pub(crate) max_tokens: usize,
}

impl Shape {
    /// The problem of a seed: from even to very uneven demand, with shards that are full, have
    /// scattered padding or consist of it, or have no tokens at all.
    pub(crate) fn problem(&self, seed: u64) -> Problem {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        let skew = generator.random_range(0.0..3.0);
        // The popular experts lie anywhere, not only on the first shard.
        let popular = generator.random_range(0..self.num_experts);
        let weights: Vec<f64> = (0..self.num_experts)
            .map(|expert| (expert + popular) % self.num_experts)
            .map(|rank| (1.0 + rank as f64).powf(-skew))
            .collect();
        let mut problem = Problem {
            num_experts: self.num_experts,
            k: self.k,
            selected: Vec::new(),
            valid: Vec::new(),
        };
        for _ in 0..self.shards {
            let tokens = generator.random_range(0..=self.max_tokens);
            let padding = [0.0, 0.1, 0.5, 1.0][generator.random_range(0..4)];
            let selected = (0..tokens).flat_map(|_| self.experts(&weights, &mut generator));
            problem.selected.push(selected.collect());
            let valid = (0..tokens).map(|_| !generator.random_bool(padding)).collect();
            problem.valid.push(valid);
        }
        problem
    }

    /// k experts without replacement, by weight: the earliest arrivals at such rates.
    fn experts(&self, weights: &[f64], generator: &mut ChaCha8Rng) -> Vec<usize> {
        let arrivals: Vec<f64> =
            weights.iter().map(|weight| -(1.0 - generator.random::<f64>()).ln() / weight).collect();
        let mut experts: Vec<usize> = (0..self.num_experts).collect();
        experts.sort_by(|&a, &b| arrivals[a].total_cmp(&arrivals[b]));
        experts.truncate(self.k);
        experts
    }
}

#[test]
fn a_seed_is_a_problem_and_seeds_reach_the_awkward_ones() {
    let shape = Shape { shards: 4, num_experts: 12, k: 3, max_tokens: 5 };
    assert_eq!(shape.problem(7), shape.problem(7));
    let problems: Vec<Problem> = (0..50).map(|seed| shape.problem(seed)).collect();
    assert!(problems.iter().any(|problem| problem.selected.iter().any(Vec::is_empty)));
    let all_padding = |valid: &Vec<bool>| !valid.is_empty() && !valid.contains(&true);
    let scattered = |valid: &Vec<bool>| valid.windows(2).any(|pair| pair == [false, true]);
    assert!(problems.iter().any(|problem| problem.valid.iter().any(all_padding)));
    assert!(problems.iter().any(|problem| problem.valid.iter().any(scattered)));
}
