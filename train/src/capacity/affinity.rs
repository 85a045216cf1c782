//! Which experts a document prefers.

use rayon::prelude::*;

use super::random::Stream;

/// What a stream of preferences is for.
const AFFINITIES: u64 = 2;

/// Log-weights of the experts for one document: Dirichlet around the uniform mean, every expert
/// with the same `concentration`.
///
/// A share's standard deviation is about its mean times `1 / sqrt(concentration)`: the smaller, the
/// fewer experts a document lives on. Only differences of log-weights mean anything. Each expert
/// has a stream of its own, so that a share moves smoothly with the concentration.
pub(super) fn log_weights(
    seed: u64,
    document: u64,
    concentration: f64,
    num_experts: usize,
) -> Vec<f64> {
    let draw =
        |expert| Stream::at(seed, &[AFFINITIES, document, expert as u64]).ln_gamma(concentration);
    (0..num_experts).map(draw).collect()
}

/// Weights from log-weights, with sum 1.
pub(super) fn normalised(log_weights: &[f64]) -> Vec<f64> {
    let largest = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut weights: Vec<f64> = log_weights.iter().map(|w| (w - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|w| *w /= sum);
    weights
}

/// Weights of many documents, `[documents, experts]`.
pub(super) fn table(
    seed: u64,
    documents: usize,
    concentration: f64,
    num_experts: usize,
) -> Vec<f64> {
    let mut table = vec![0.0; documents * num_experts];
    table.par_chunks_mut(num_experts).enumerate().for_each(|(document, weights)| {
        let drawn = log_weights(seed, document as u64, concentration, num_experts);
        weights.copy_from_slice(&normalised(&drawn));
    });
    table
}
