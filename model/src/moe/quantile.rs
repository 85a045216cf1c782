//! Quantile balancing: a bias from the margin that exactly the fair share of tokens exceeds.

use burn::tensor::Tensor;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::balance::Balancing;
use super::grid::MarginGrid;
use super::router::Routing;

/// Margins closer together than this are spread over one bin width apart (SPEC section 2).
const MIN_RANGE: f32 = 1e-6;

/// How the histogram's range is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarginRange {
    /// The live range of all margins of the step, which one micro-batch knows in advance.
    OnePass,
    /// A grid of power-of-two width aligned at zero, for steps of several micro-batches.
    Grid,
}

/// Quantile balancing (SPEC section 2).
///
/// The margin of a token and an expert is the unbiased logit less the best biased score that was
/// not chosen. An expert's beta is the margin that exactly `tokens k / experts` of the step's
/// tokens exceed; the next bias is `mean(beta) - beta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantileBalancing {
    /// Bins of the histogram; 10,000 in the recipe.
    pub bins: usize,
    /// How the range is found.
    pub range: MarginRange,
}

/// The margins of one layer over some tokens.
#[derive(Debug, Clone)]
pub enum MarginStats {
    /// Every margin, for an exact range.
    OnePass {
        /// [e, tokens].
        margins: Vec<f32>,
        /// Valid tokens.
        tokens: usize,
        /// Experts per token.
        k: usize,
    },
    /// Counts on the aligned grid.
    Grid {
        /// The histogram.
        grid: MarginGrid,
        /// Experts per token.
        k: usize,
    },
}

impl Balancing for QuantileBalancing {
    type Stats = MarginStats;

    fn observe(&self, routing: &Routing, token_valid: &[bool]) -> MarginStats {
        let [_, num_experts] = routing.logits.dims();
        let [_, k] = routing.selected.dims();
        let margins = margins_by_expert(&routing.logits, &routing.alpha, token_valid);
        let tokens = margins.len() / num_experts;
        match self.range {
            MarginRange::OnePass => MarginStats::OnePass { margins, tokens, k },
            MarginRange::Grid => {
                MarginStats::Grid { grid: MarginGrid::count(&margins, num_experts, self.bins), k }
            }
        }
    }

    fn merge(&self, left: MarginStats, right: MarginStats) -> MarginStats {
        match (left, right) {
            (MarginStats::Grid { grid, k }, MarginStats::Grid { grid: other, .. }) => {
                MarginStats::Grid { grid: grid.merge(other, self.bins), k }
            }
            _ => panic!(
                "a one-pass histogram covers a whole step; several micro-batches need a grid"
            ),
        }
    }

    /// Betas are those of the step alone.
    fn pending(&self, _previous: &[f32], stats: &MarginStats) -> Vec<f32> {
        match stats {
            MarginStats::OnePass { margins, tokens, k } => {
                one_pass(margins, *tokens, *k, self.bins)
            }
            MarginStats::Grid { grid, k } => grid.quantiles(*k),
        }
    }

    fn bias(&self, pending: &[f32]) -> Vec<f32> {
        let mean = pending.iter().map(|beta| f64::from(*beta)).sum::<f64>() / pending.len() as f64;
        pending.iter().map(|beta| (mean - f64::from(*beta)) as f32).collect()
    }
}

/// Logits [t, e] less alpha `[t]` over valid tokens, as [e, valid tokens].
fn margins_by_expert(logits: &Tensor<2>, alpha: &Tensor<1>, token_valid: &[bool]) -> Vec<f32> {
    let [_, num_experts] = logits.dims();
    let logits = logits.clone().inner().into_data();
    let logits = logits.as_slice::<f32>().expect("router logits are f32");
    let alpha = alpha.clone().into_data();
    let alpha = alpha.as_slice::<f32>().expect("alpha is f32");
    let tokens: Vec<usize> = (0..token_valid.len()).filter(|&t| token_valid[t]).collect();
    let mut margins = vec![0.0; num_experts * tokens.len()];
    if tokens.is_empty() {
        return margins;
    }
    margins.par_chunks_mut(tokens.len()).enumerate().for_each(|(expert, margins)| {
        for (margin, &token) in margins.iter_mut().zip(&tokens) {
            *margin = logits[token * num_experts + expert] - alpha[token];
        }
    });
    margins
}

/// Betas `[e]` from margins [e, tokens] with one range over all of them.
///
/// # Panics
/// If `margins` is not a whole number of rows of `tokens`, or there are no tokens.
pub fn one_pass(margins: &[f32], tokens: usize, k: usize, bins: usize) -> Vec<f32> {
    assert!(tokens > 0 && margins.len().is_multiple_of(tokens), "margins come as [e, tokens]");
    let num_experts = margins.len() / tokens;
    let low = margins.par_iter().copied().reduce(|| f32::INFINITY, f32::min);
    let high = margins.par_iter().copied().reduce(|| f32::NEG_INFINITY, f32::max);
    let width = (high.max(low + MIN_RANGE) - low) / bins as f32;
    let target = tokens as f64 * k as f64 / num_experts as f64;
    let beta = |margins: &[f32]| {
        let mut counts = vec![0u64; bins];
        for margin in margins {
            let bin = ((margin - low) / width).floor();
            counts[(bin.max(0.0) as usize).min(bins - 1)] += 1;
        }
        let (bin, beyond) = crossing(&counts, target);
        low + bin as f32 * width + width * beyond
    };
    margins.par_chunks(tokens).map(beta).collect()
}

/// The last bin whose count from the top reaches `target`, and how far into the bin, in widths,
/// the quantile lies.
pub(crate) fn crossing(counts: &[u64], target: f64) -> (usize, f32) {
    let mut from_top = 0;
    for bin in (0..counts.len()).rev() {
        from_top += counts[bin];
        if from_top as f64 >= target {
            return (bin, ((from_top as f64 - target) / counts[bin].max(1) as f64) as f32);
        }
    }
    (0, 0.0)
}

#[cfg(test)]
mod tests;
