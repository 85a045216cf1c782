//! Choices of documents with topics of their own.

use fulmar_ep::replay::World;
use rayon::prelude::*;
use serde::Serialize;

use super::affinity;
use super::balance::Batch;
use super::documents::Documents;
use super::draw::Sampler;
use super::random::Stream;

/// What a stream of tokens is for.
const TOKENS: u64 = 3;

/// The batch whose loads the biases make even, and the batch that is routed with them.
const BEFORE: u64 = 0;
const NOW: u64 = 1;

/// Tokens of shards, in rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Who exchanges.
    pub world: World,
    /// Tokens of a shard.
    pub tokens: usize,
    /// Tokens of a row: a divisor of a shard's, or a multiple that neighbouring shards share.
    pub row_tokens: usize,
}

impl Shape {
    fn all_tokens(&self) -> usize {
        self.world.shards * self.tokens
    }

    /// Whether rows cut no shard and shards cut no row elsewhere than at their borders.
    pub(super) fn is_even(&self) -> bool {
        let Self { world, tokens, row_tokens } = *self;
        let spans = row_tokens / tokens.max(1);
        row_tokens > 0
            && (tokens.is_multiple_of(row_tokens)
                || row_tokens.is_multiple_of(tokens) && world.shards.is_multiple_of(spans))
    }
}

/// What choices are drawn from, beside their shape.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Synthetic {
    /// How long documents are.
    pub documents: Documents,
    /// Whether the biases of the batch before apply; without them an expert's load is even only in
    /// the mean over all documents there could be.
    pub balanced: bool,
    /// Everything drawn is a function of it.
    pub seed: u64,
}

impl Synthetic {
    /// `[shards, tokens, k]` expert ids.
    pub fn choices(&self, shape: &Shape, concentration: f64) -> Vec<u16> {
        let k = shape.world.experts_per_token;
        let routing = Routing {
            shape,
            concentration,
            biases: self.biases(shape, concentration),
            starts: self.starts(shape, NOW),
            seed: self.seed_of(NOW),
        };
        let mut selected = vec![0; shape.all_tokens() * k];
        selected
            .par_chunks_mut(shape.tokens * k)
            .enumerate()
            .for_each(|(shard, selected)| routing.fill(shard, selected));
        selected
    }

    /// Documents of the batch that is routed.
    pub fn num_documents(&self, shape: &Shape) -> usize {
        self.starts(shape, NOW).len()
    }

    fn seed_of(&self, batch: u64) -> u64 {
        Stream::at(self.seed, &[batch]).bits()
    }

    fn starts(&self, shape: &Shape, batch: u64) -> Vec<usize> {
        self.documents.starts(shape.all_tokens(), shape.row_tokens, self.seed_of(batch))
    }

    fn biases(&self, shape: &Shape, concentration: f64) -> Vec<f64> {
        let World { num_experts, experts_per_token, .. } = shape.world;
        if !self.balanced {
            return vec![0.0; num_experts];
        }
        let mut starts = self.starts(shape, BEFORE);
        starts.push(shape.all_tokens());
        let tokens: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let seed = self.seed_of(BEFORE);
        let weights = affinity::table(seed, tokens.len(), concentration, num_experts);
        Batch::new(num_experts, experts_per_token, weights, &tokens).biases()
    }
}

/// A batch about to be routed.
struct Routing<'a> {
    shape: &'a Shape,
    concentration: f64,
    biases: Vec<f64>,
    /// First tokens of the documents.
    starts: Vec<usize>,
    seed: u64,
}

impl Routing<'_> {
    /// Draws the choices of a shard's tokens, document by document.
    fn fill(&self, shard: usize, selected: &mut [u16]) {
        let k = self.shape.world.experts_per_token;
        let (mut at, end) = (shard * self.shape.tokens, (shard + 1) * self.shape.tokens);
        let mut document = self.starts.partition_point(|start| *start <= at) - 1;
        let mut rest = selected;
        while at < end {
            let stop = self.starts.get(document + 1).map_or(end, |next| end.min(*next));
            let (part, others) = rest.split_at_mut((stop - at) * k);
            let sampler = Sampler::new(self.log_weights(document));
            let mut stream = Stream::at(self.seed, &[TOKENS, at as u64]);
            part.chunks_exact_mut(k).for_each(|chosen| sampler.draw(&mut stream, chosen));
            (rest, at, document) = (others, stop, document + 1);
        }
    }

    fn log_weights(&self, document: usize) -> Vec<f64> {
        let experts = self.shape.world.num_experts;
        let mut log_weights =
            affinity::log_weights(self.seed, document as u64, self.concentration, experts);
        log_weights.iter_mut().zip(&self.biases).for_each(|(weight, bias)| *weight += bias);
        log_weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: World = World { shards: 4, num_experts: 24, experts_per_token: 3 };

    fn synthetic(documents: Documents, balanced: bool) -> Synthetic {
        Synthetic { documents, balanced, seed: 1 }
    }

    #[test]
    fn every_token_has_distinct_experts_and_a_seed_gives_one_batch() {
        let shape = Shape { world: WORLD, tokens: 128, row_tokens: 32 };
        let synthetic = synthetic(Documents::Fixed(20), true);
        let selected = synthetic.choices(&shape, 0.3);
        assert_eq!(selected.len(), 4 * 128 * 3);
        for chosen in selected.chunks_exact(3) {
            assert!(chosen.iter().all(|expert| *expert < 24));
            assert!(chosen[0] != chosen[1] && chosen[1] != chosen[2] && chosen[0] != chosen[2]);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
        assert_eq!(pool.install(|| synthetic.choices(&shape, 0.3)), selected);
        assert_ne!(Synthetic { seed: 2, ..synthetic }.choices(&shape, 0.3), selected);
    }

    #[test]
    fn a_row_over_several_shards_is_one_document_on_all_of_them() {
        let shape = Shape { world: WORLD, tokens: 512, row_tokens: 2_048 };
        let synthetic = synthetic(Documents::Row, false);
        assert_eq!(synthetic.num_documents(&shape), 1);
        let selected = synthetic.choices(&shape, 0.05);
        let favourite = |shard: &[u16]| {
            let mut counts = [0; 24];
            shard.iter().for_each(|&expert| counts[usize::from(expert)] += 1);
            (0..24).max_by_key(|&expert| counts[expert])
        };
        let shards: Vec<_> = selected.chunks_exact(512 * 3).map(favourite).collect();
        assert!(shards.iter().all(|shard| *shard == shards[0]), "{shards:?}");
    }

    #[test]
    fn rows_lie_evenly_on_shards_or_are_refused() {
        let is_even = |row_tokens| Shape { world: WORLD, tokens: 128, row_tokens }.is_even();
        assert!([1, 32, 128, 256, 512].into_iter().all(is_even));
        assert!(![0, 48, 384, 1_024].into_iter().any(is_even));
    }
}
