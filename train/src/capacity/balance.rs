//! What balancing does to the weights: one bias an expert.
//!
//! Quantile balancing (SPEC section 2) sets each step's router biases so that, on the batch of the
//! step *before*, every expert would have had its even share; it remembers no earlier step. So do
//! we: a batch's documents are drawn, biases are found that make its expected loads even, and the
//! next batch, of other documents, is routed with them. What its own documents do to receivers is
//! then left, and so is the noise of the batch before.

use rayon::prelude::*;

/// Documents of one unit of work: constant, so that sums do not depend on threads.
const BLOCK_DOCUMENTS: usize = 32;
/// Largest relative distance of an expert's load from its even share; far below the room that
/// capacity factors leave.
const TOLERANCE: f64 = 1e-3;
/// Few wide batches need a handful of rounds; sixteen documents may need all of these.
const MAX_ROUNDS: usize = 200;

/// Documents whose loads can be made even.
pub(super) struct Batch {
    num_experts: usize,
    experts_per_token: f64,
    /// `[documents, experts]`, sum 1 for each document.
    weights: Vec<f64>,
    /// Share of each document in the tokens.
    sizes: Vec<f64>,
}

impl Batch {
    pub(super) fn new(
        num_experts: usize,
        experts_per_token: usize,
        weights: Vec<f64>,
        tokens: &[usize],
    ) -> Self {
        let all: usize = tokens.iter().sum();
        let sizes = tokens.iter().map(|&tokens| tokens as f64 / all as f64).collect();
        Self { num_experts, experts_per_token: experts_per_token as f64, weights, sizes }
    }

    /// Biases on log-weights under which every expert has the same expected load.
    ///
    /// The load of an expert rises with its own bias, so each round multiplies its weight by how
    /// far the load falls short, as in Sinkhorn's scaling.
    pub(super) fn biases(&self) -> Vec<f64> {
        let even = self.experts_per_token / self.num_experts as f64;
        let mut factors = vec![1.0; self.num_experts];
        let mut times = vec![self.experts_per_token; self.sizes.len()];
        for _ in 0..MAX_ROUNDS {
            let loads = self.loads(&factors, &mut times);
            let worst = loads.iter().map(|load| (load / even - 1.0).abs()).fold(0.0, f64::max);
            if worst <= TOLERANCE {
                break;
            }
            factors.iter_mut().zip(&loads).for_each(|(factor, load)| *factor *= even / load);
        }
        factors.iter().map(|factor| factor.ln()).collect()
    }

    /// Expected choices of each expert, per token of the batch.
    ///
    /// Drawing k distinct experts is a race of exponential clocks with the weights as rates, which
    /// ends when k have rung. With the time fixed at the `t` by which k ring on average, an expert
    /// is chosen with probability `1 - exp(-t w)`. `times` holds each document's `t`, and on
    /// entry a first guess at it.
    fn loads(&self, factors: &[f64], times: &mut [f64]) -> Vec<f64> {
        let blocks: Vec<Vec<f64>> = times
            .par_chunks_mut(BLOCK_DOCUMENTS)
            .zip(self.weights.par_chunks(BLOCK_DOCUMENTS * self.num_experts))
            .zip(self.sizes.par_chunks(BLOCK_DOCUMENTS))
            .map(|((times, weights), sizes)| self.block_loads(factors, times, weights, sizes))
            .collect();
        let mut loads = vec![0.0; self.num_experts];
        for block in blocks {
            loads.iter_mut().zip(block).for_each(|(load, part)| *load += part);
        }
        loads
    }

    fn block_loads(
        &self,
        factors: &[f64],
        times: &mut [f64],
        weights: &[f64],
        sizes: &[f64],
    ) -> Vec<f64> {
        let mut loads = vec![0.0; self.num_experts];
        let mut rates = vec![0.0; self.num_experts];
        let documents = weights.chunks_exact(self.num_experts).zip(times).zip(sizes);
        for ((weights, time), size) in documents {
            for ((rate, weight), factor) in rates.iter_mut().zip(weights).zip(factors) {
                *rate = weight * factor;
            }
            *time = time_of(self.experts_per_token, &rates, *time);
            for (load, rate) in loads.iter_mut().zip(&rates) {
                *load -= size * (-*time * rate).exp_m1();
            }
        }
        loads
    }
}

/// The time by which clocks of these rates have rung `k` times on average, from a first guess.
///
/// Newton's steps on the logarithm of time, bounded, since rates may span many decades.
fn time_of(k: f64, rates: &[f64], guess: f64) -> f64 {
    let mut time = guess;
    for _ in 0..60 {
        let (mut rung, mut slope) = (0.0, 0.0);
        for rate in rates {
            let silent = (-time * rate).exp();
            rung += 1.0 - silent;
            slope += time * rate * silent;
        }
        let step = ((k - rung) / slope).clamp(-2.0, 2.0);
        time *= step.exp();
        if step.abs() < 1e-6 {
            break;
        }
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::affinity;
    use crate::capacity::draw::Sampler;
    use crate::capacity::random::Stream;

    #[test]
    fn biases_make_the_loads_of_their_own_batch_even() {
        let (experts, k, documents) = (24, 4, 40);
        let weights = affinity::table(5, documents, 0.3, experts);
        let tokens: Vec<usize> = (0..documents).map(|d| 10 + d).collect();
        let batch = Batch::new(experts, k, weights, &tokens);
        let spread = |factors: &[f64]| {
            let loads = batch.loads(factors, &mut vec![4.0; documents]);
            let (low, high) = loads
                .iter()
                .fold((f64::MAX, 0.0_f64), |(low, high), &load| (low.min(load), high.max(load)));
            assert!((loads.iter().sum::<f64>() - 4.0).abs() < 1e-3);
            high / low
        };
        let factors: Vec<f64> = batch.biases().iter().map(|bias| bias.exp()).collect();
        assert!(spread(&vec![1.0; experts]) > 1.5);
        assert!(spread(&factors) < 1.003);
    }

    #[test]
    fn expected_loads_are_those_of_drawn_tokens() {
        let (experts, k, tokens) = (48, 6, 50_000);
        let log_weights = affinity::log_weights(2, 0, 0.4, experts);
        let batch = Batch::new(experts, k, affinity::normalised(&log_weights), &[tokens]);
        let expected = batch.loads(&vec![1.0; experts], &mut [6.0]);
        let (sampler, mut stream) = (Sampler::new(log_weights), Stream::at(9, &[]));
        let (mut chosen, mut counts) = (vec![0; k], vec![0_u32; experts]);
        for _ in 0..tokens {
            sampler.draw(&mut stream, &mut chosen);
            chosen.iter().for_each(|&expert| counts[usize::from(expert)] += 1);
        }
        for (count, expected) in counts.iter().zip(expected) {
            let share = f64::from(*count) / tokens as f64;
            // Sampling leaves 0.002; the rest is the fixed time instead of the k-th ring's own.
            assert!((share - expected).abs() < 0.02, "{share}, expected {expected}");
        }
    }

    #[test]
    fn the_time_is_when_k_have_rung() {
        let rates = [1e-9, 0.3, 0.5, 2.0, 1e3];
        for k in [0.5, 2.0, 4.0, 4.9] {
            let time = time_of(k, &rates, 1.0);
            let rung: f64 = rates.iter().map(|rate| 1.0 - (-time * rate).exp()).sum();
            assert!((rung - k).abs() < 1e-4, "{rung} for {k}");
        }
    }
}
