use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{MarginBins, MarginKernel};
use crate::flex::{contiguous, dims, floats, int_tensor, integers, integers_of};
use crate::simd::{Loop, MulAdd, vectorised};

/// Experts whose scores are read together: a line of the cache.
const LINE: usize = 16;

/// Bins that are added up before a rank is looked for among them.
const TOGETHER: usize = 64;

impl MarginKernel for Flex {
    fn histogram(
        logits: FlexTensor,
        alpha: FlexTensor,
        token_valid: FlexTensor,
        bins: MarginBins,
    ) -> FlexTensor {
        let scores = Scores::new(logits, alpha, token_valid);
        let (e, len) = (scores.num_experts, bins.count());
        let mut counts = vec![0; e * len];
        counts.par_chunks_mut(LINE * len).enumerate().for_each(|(line, counts)| {
            let ids = scores.bin_ids(line, bins);
            for (counts, ids) in counts.chunks_mut(len).zip(ids.chunks(scores.tokens.len().max(1)))
            {
                count(ids, counts);
            }
        });
        int_tensor(counts, [e, len])
    }

    /// Counts one expert at a time, in bins that stay in the cache.
    fn cross_margins(
        logits: FlexTensor,
        alpha: FlexTensor,
        token_valid: FlexTensor,
        bins: MarginBins,
        rank: i32,
    ) -> FlexTensor {
        let scores = Scores::new(logits, alpha, token_valid);
        let (e, len, tokens) = (scores.num_experts, bins.count(), scores.tokens.len());
        let mut crossings = vec![0; e * 3];
        crossings.par_chunks_mut(LINE * 3).enumerate().for_each(|(line, crossings)| {
            let ids = scores.bin_ids(line, bins);
            let mut counts = vec![0; len];
            for (expert, found) in crossings.chunks_mut(3).enumerate() {
                counts.fill(0);
                count(&ids[expert * tokens..][..tokens], &mut counts);
                found.copy_from_slice(&crossing(&counts, rank));
            }
        });
        int_tensor(crossings, [e, 3])
    }

    fn cross(counts: FlexTensor, rank: i32) -> FlexTensor {
        let counts = contiguous(counts);
        let [e, len] = dims(&counts);
        let mut crossings = vec![0; e * 3];
        let counts = integers_of(&counts);
        crossings.par_chunks_mut(3).zip(counts.par_chunks(len)).for_each(|(found, counts)| {
            found.copy_from_slice(&crossing(counts, rank));
        });
        int_tensor(crossings, [e, 3])
    }
}

fn count(ids: &[i32], counts: &mut [i32]) {
    for &id in ids {
        counts[id as usize] += 1;
    }
}

/// The last bin whose count from the top reaches `rank`, that count and the bin's own; the first
/// bin where none does.
fn crossing(counts: &[i32], rank: i32) -> [i32; 3] {
    let (mut from_top, mut end) = (0, counts.len());
    for bins in counts.rchunks(TOGETHER) {
        let sum: i32 = bins.iter().sum();
        if from_top + sum >= rank {
            for bin in (0..end).rev() {
                from_top += counts[bin];
                if from_top >= rank {
                    return [bin as i32, from_top, counts[bin]];
                }
            }
        }
        from_top += sum;
        end -= bins.len();
    }
    [0, from_top, counts[0]]
}

/// What margins are formed from, and which tokens have any.
struct Scores {
    logits: FlexTensor,
    alpha: FlexTensor,
    tokens: Vec<usize>,
    num_experts: usize,
}

impl Scores {
    fn new(logits: FlexTensor, alpha: FlexTensor, token_valid: FlexTensor) -> Self {
        let [_, num_experts] = dims(&logits);
        let valid = integers(token_valid);
        let tokens = (0..valid.len()).filter(|token| valid[*token] != 0).collect();
        Self { logits: contiguous(logits), alpha: contiguous(alpha), tokens, num_experts }
    }

    /// The bin of each margin of a line of experts [experts, tokens].
    fn bin_ids(&self, line: usize, bins: MarginBins) -> Vec<i32> {
        let first = line * LINE;
        let experts = LINE.min(self.num_experts - first);
        let mut ids = vec![0; experts * self.tokens.len()];
        vectorised(BinIds { scores: self, first, experts, bins, ids: &mut ids });
        ids
    }
}

struct BinIds<'a> {
    scores: &'a Scores,
    first: usize,
    experts: usize,
    bins: MarginBins,
    ids: &'a mut [i32],
}

impl Loop for BinIds<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let (logits, alpha) = (floats(&self.scores.logits), floats(&self.scores.alpha));
        let tokens = &self.scores.tokens;
        let mut line = [0; LINE];
        for (i, &token) in tokens.iter().enumerate() {
            let start = token * self.scores.num_experts + self.first;
            let logits = &logits[start..][..self.experts];
            for (id, logit) in line.iter_mut().zip(logits) {
                *id = self.bins.bin_of(logit - alpha[token]);
            }
            for (expert, id) in line[..self.experts].iter().enumerate() {
                self.ids[expert * tokens.len() + i] = *id;
            }
        }
    }
}
