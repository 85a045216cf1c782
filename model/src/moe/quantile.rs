//! Quantile balancing: a bias from the margin that exactly the fair share of tokens exceeds.

use burn::tensor::Tensor;
use fulmar_ep::transport::{Group, TransportError};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::balance::Balancing;
use super::grid::MarginGrid;
use super::over_ranks;
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
        /// [e, valid tokens].
        margins: Vec<f32>,
        /// Experts.
        num_experts: usize,
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
        match self.range {
            MarginRange::OnePass => MarginStats::OnePass { margins, num_experts, k },
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
    fn pending(
        &self,
        _previous: &[f32],
        stats: &MarginStats,
        ranks: &Group,
    ) -> Result<Vec<f32>, TransportError> {
        let alone = ranks.size() == 1;
        match stats {
            MarginStats::OnePass { margins, num_experts, k } if alone => {
                Ok(one_pass(margins, *num_experts, *k, self.bins))
            }
            MarginStats::OnePass { margins, num_experts, k } => {
                over_ranks::one_pass(margins, *num_experts, *k, self.bins, ranks)
            }
            MarginStats::Grid { grid, k } if alone => Ok(grid.quantiles(*k)),
            MarginStats::Grid { grid, k } => over_ranks::grid(grid, *k, self.bins, ranks),
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

/// Betas `[e]` from margins [e, tokens] with one range over all of them; 0 without tokens.
///
/// A margin that is NaN makes every beta NaN: it has no place in an order.
///
/// # Panics
/// If `margins` does not have as many for each expert.
pub fn one_pass(margins: &[f32], num_experts: usize, k: usize, bins: usize) -> Vec<f32> {
    assert!(margins.len().is_multiple_of(num_experts), "margins come as [e, tokens]");
    if margins.is_empty() {
        return vec![0.0; num_experts];
    }
    let tokens = margins.len() / num_experts;
    let live = LiveBins::new(bounds(margins), bins);
    let target = fair_share(tokens as u64, k, num_experts);
    let beta = |margins: &[f32]| {
        let mut counts = vec![0; bins];
        live.count(margins.iter().copied(), &mut counts);
        live.quantile(&counts, target)
    };
    margins.par_chunks(tokens).map(beta).collect()
}

/// The negative of the least margin, and the greatest.
pub(super) type Bounds = [f32; 2];

/// The bounds of no margins.
pub(super) const NO_BOUNDS: Bounds = [f32::NEG_INFINITY; 2];

/// The bounds of margins, NaN if one of them is.
pub(super) fn bounds(margins: &[f32]) -> Bounds {
    margins.par_iter().map(|&margin| [-margin, margin]).reduce(|| NO_BOUNDS, wider)
}

/// The bounds of both; unlike [`f32::max`] it does not pass over NaN.
pub(super) fn wider(left: Bounds, right: Bounds) -> Bounds {
    let max = |left: f32, right: f32| if left > right || left.is_nan() { left } else { right };
    [max(left[0], right[0]), max(left[1], right[1])]
}

/// A range cut into bins of equal width.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBins {
    low: f32,
    width: f32,
}

impl LiveBins {
    pub(super) fn new([minus_low, high]: Bounds, bins: usize) -> Self {
        let low = -minus_low;
        Self { low, width: (high.max(low + MIN_RANGE) - low) / bins as f32 }
    }

    /// Adds margins to the counts of their bins.
    pub(super) fn count(self, margins: impl Iterator<Item = f32>, counts: &mut [u64]) {
        let last = counts.len() - 1;
        for margin in margins {
            let bin = ((margin - self.low) / self.width).floor();
            counts[(bin.max(0.0) as usize).min(last)] += 1;
        }
    }

    /// The margin that `target` of the counted ones exceed.
    pub(super) fn quantile(self, counts: &[u64], target: f64) -> f32 {
        let (bin, beyond) = crossing(counts, target);
        self.low + bin as f32 * self.width + self.width * beyond
    }
}

/// How many of `tokens` an expert gets when all get as many.
pub(super) fn fair_share(tokens: u64, k: usize, num_experts: usize) -> f64 {
    tokens as f64 * k as f64 / num_experts as f64
}

/// The last bin whose count from the top reaches `target`, and how far into the bin, in widths,
/// the quantile lies.
pub(super) fn crossing(counts: &[u64], target: f64) -> (usize, f32) {
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
