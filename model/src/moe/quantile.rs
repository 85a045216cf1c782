//! Quantile balancing: a bias from the margin that exactly the fair share of tokens exceeds.

use burn::tensor::{Int, Tensor};
use fulmar_ep::transport::{Group, TransportError};
use fulmar_kernels::margins::MarginBins;
use serde::{Deserialize, Serialize};

use super::balance::Balancing;
use super::grid::MarginGrid;
use super::observation::{LayerMargins, Observation};
use super::over_ranks;

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
#[allow(clippy::large_enum_variant, reason = "a step has one for each layer")]
pub enum MarginStats {
    /// Every margin, for an exact range.
    OnePass {
        /// Of the step's tokens; they stay on the device.
        margins: LayerMargins,
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

    fn observe(&self, observation: &Observation<'_>) -> MarginStats {
        let [_, k] = observation.routing.selected.dims();
        let margins = observation.margins();
        match self.range {
            MarginRange::OnePass => MarginStats::OnePass { margins, k },
            MarginRange::Grid => {
                MarginStats::Grid { grid: MarginGrid::count(margins, self.bins), k }
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
            MarginStats::OnePass { margins, k } if alone => Ok(one_pass(margins, *k, self.bins)),
            MarginStats::OnePass { margins, k } => {
                over_ranks::one_pass(margins, *k, self.bins, ranks)
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

/// Betas `[e]` with one range over all margins; 0 without tokens.
///
/// A margin that is not finite makes every beta NaN: it has no place in an order.
fn one_pass(margins: &LayerMargins, k: usize, bins: usize) -> Vec<f32> {
    let num_experts = margins.margins.num_experts();
    if margins.tokens == 0 {
        return vec![0.0; num_experts];
    }
    let live = LiveBins::new(margins.bounds, bins);
    if !live.is_finite() {
        return vec![f32::NAN; num_experts];
    }
    let target = fair_share(margins.tokens, k, num_experts);
    let found = margins.margins.clone().crossings(live.bins(), least_count(target));
    Crossing::read(found).map(|crossing| live.quantile(crossing, target)).collect()
}

/// A range cut into bins of equal width.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBins {
    low: f32,
    width: f32,
    len: usize,
}

impl LiveBins {
    /// From the least and the greatest margin.
    pub(super) fn new([low, high]: [f32; 2], bins: usize) -> Self {
        Self { low, width: (high.max(low + MIN_RANGE) - low) / bins as f32, len: bins }
    }

    /// Whether margins have a place in the bins.
    pub(super) fn is_finite(self) -> bool {
        self.low.is_finite() && self.width.is_finite()
    }

    pub(super) fn bins(self) -> MarginBins {
        MarginBins::Range { low: self.low, width: self.width, len: self.len }
    }

    /// The margin that `target` of those counted exceed.
    pub(super) fn quantile(self, crossing: Crossing, target: f64) -> f32 {
        self.low + crossing.bin as f32 * self.width + self.width * crossing.beyond(target)
    }
}

/// How many of `tokens` an expert gets when all get as many.
pub(super) fn fair_share(tokens: u64, k: usize, num_experts: usize) -> f64 {
    tokens as f64 * k as f64 / num_experts as f64
}

/// The least count that reaches `target`.
pub(super) fn least_count(target: f64) -> u64 {
    target.ceil() as u64
}

/// The last bin whose count from the top reaches a rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    pub(super) bin: usize,
    /// Counts from the top down to and with the bin.
    from_top: u64,
    /// The bin's own.
    count: u64,
}

impl Crossing {
    /// Of counts on the host; the first bin where they do not reach `rank`.
    pub(super) fn find(counts: &[u64], rank: u64) -> Self {
        let mut found = Self { bin: counts.len(), from_top: 0, count: 0 };
        while found.bin > 0 && (found.bin == counts.len() || found.from_top < rank) {
            found.bin -= 1;
            found.count = counts[found.bin];
            found.from_top += found.count;
        }
        found
    }

    /// Those of each expert from a device [e, 3].
    pub(super) fn read(found: Tensor<2, Int>) -> impl Iterator<Item = Self> {
        let values: Vec<u64> = found.into_data().iter::<u64>().collect();
        let crossing = |row: &[u64]| Self { bin: row[0] as usize, from_top: row[1], count: row[2] };
        values.chunks(3).map(crossing).collect::<Vec<_>>().into_iter()
    }

    /// How far into the bin, in widths, the quantile lies.
    pub(super) fn beyond(self, target: f64) -> f32 {
        ((self.from_top as f64 - target).max(0.0) / self.count.max(1) as f64) as f32
    }
}

#[cfg(test)]
mod tests;
