//! A margin histogram whose bins do not depend on what came first.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::margins::{MarginBins, aligned_bin, crossings};

use super::observation::LayerMargins;
use super::quantile::{Crossing, fair_share, least_count};

/// Bins are never narrower than 2 to this power, about the guard of the one-pass range.
const MIN_EXPONENT: i32 = -20;

/// Counts of margins in bins of width `2^exponent` aligned at zero.
///
/// When the range outgrows the number of bins the width doubles and neighbours merge. The final
/// width is the least that holds the whole range, so counts depend neither on the order of the
/// tokens nor on their split over micro-batches and ranks (SPEC section 2).
#[derive(Debug, Clone)]
pub struct MarginGrid {
    pub(super) bins: GridBins,
    pub(super) num_experts: usize,
    tokens: u64,
    /// [e, bins] on the device of the scores; nothing where there is no margin.
    counts: Option<Tensor<2, Int>>,
}

impl MarginGrid {
    /// The histogram of margins in at most `bins` bins.
    ///
    /// # Panics
    /// If a margin is not finite; a router has no margins for such scores.
    pub fn count(margins: LayerMargins, bins: usize) -> Self {
        let LayerMargins { margins, tokens, bounds: [low, high] } = margins;
        let num_experts = margins.num_experts();
        if tokens == 0 {
            return Self { bins: GridBins::NONE, num_experts, tokens, counts: None };
        }
        assert!(low.is_finite() && high.is_finite(), "margins from {low} to {high}");
        let bins = GridBins::of_range(low, high, bins);
        let GridBins { exponent, first, len } = bins;
        let counts = margins.histogram(MarginBins::Aligned { exponent, first, len });
        Self { bins, num_experts, tokens, counts: Some(counts) }
    }

    /// The histogram of both sets of tokens in at most `bins` bins.
    #[must_use]
    pub fn merge(self, other: Self, bins: usize) -> Self {
        let bins = self.bins.join(other.bins, bins);
        let counts = match (self.in_bins(bins), other.in_bins(bins)) {
            (Some(left), Some(right)) => Some(left + right),
            (left, right) => left.or(right),
        };
        let tokens = self.tokens + other.tokens;
        Self { bins, num_experts: self.num_experts, tokens, counts }
    }

    /// For each expert the margin that exactly `tokens k / experts` tokens exceed; 0 without
    /// tokens.
    pub fn quantiles(&self, k: usize) -> Vec<f32> {
        let Some(counts) = self.counts.clone() else { return vec![0.0; self.num_experts] };
        let target = fair_share(self.tokens, k, self.num_experts);
        let found = Crossing::read(crossings(counts, least_count(target)));
        found.map(|crossing| self.bins.quantile(crossing, target)).collect()
    }

    /// Tokens counted.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The same counts [e, bins] in bins that are as wide or wider, and hold all of them.
    pub(super) fn in_bins(&self, bins: GridBins) -> Option<Tensor<2, Int>> {
        let mut counts = self.counts.clone()?;
        for exponent in self.bins.exponent..bins.exponent {
            counts = in_pairs(counts, self.bins.at(exponent).first);
        }
        let front = self.bins.at(bins.exponent).first - bins.first;
        Some(padded(counts, front as usize, bins.len))
    }
}

/// Counts in bins of twice the width: neighbours merge, the even one first.
fn in_pairs(counts: Tensor<2, Int>, first: i64) -> Tensor<2, Int> {
    let [e, len] = counts.dims();
    let front = first.rem_euclid(2) as usize;
    let pairs = (front + len).div_ceil(2);
    let pairs = padded(counts, front, pairs * 2).reshape([e, pairs, 2]);
    (pairs.clone().narrow(2, 0, 1) + pairs.narrow(2, 1, 1)).squeeze_dim(2)
}

/// Counts among `len` bins, of which the first `front` and those behind the counts are empty.
fn padded(counts: Tensor<2, Int>, front: usize, len: usize) -> Tensor<2, Int> {
    let [e, held] = counts.dims();
    if held == len {
        return counts;
    }
    let all = Tensor::zeros([e, len], (&counts.device(), counts.dtype()));
    all.slice_assign([0..e, front..front + held], counts)
}

/// Neighbouring bins of width `2^exponent`, the first of them `first` widths from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GridBins {
    pub(super) exponent: i32,
    pub(super) first: i64,
    /// How many; 0 where there is no margin.
    pub(super) len: usize,
}

impl GridBins {
    /// Bins of no margins.
    const NONE: Self = Self { exponent: MIN_EXPONENT, first: 0, len: 0 };

    /// At most `bins` bins, of the least width that holds all from `low` to `high`.
    fn of_range(low: f32, high: f32, bins: usize) -> Self {
        let fits =
            |exponent| aligned_bin(high, exponent) - aligned_bin(low, exponent) < bins as i64;
        let exponent = (MIN_EXPONENT..).find(|&e| fits(e)).expect("finite margins fit some width");
        Self::between(aligned_bin(low, exponent), aligned_bin(high, exponent), exponent)
    }

    fn between(first: i64, last: i64, exponent: i32) -> Self {
        Self { exponent, first, len: (last - first + 1) as usize }
    }

    fn last(self) -> i64 {
        self.first + self.len as i64 - 1
    }

    /// At most `bins` bins, of the least width that holds what both hold.
    pub(super) fn join(self, other: Self, bins: usize) -> Self {
        if self.len == 0 || other.len == 0 {
            return if self.len == 0 { other } else { self };
        }
        let both = |exponent| {
            let (left, right) = (self.at(exponent), other.at(exponent));
            let last = left.last().max(right.last());
            Self::between(left.first.min(right.first), last, exponent)
        };
        let widest = self.exponent.max(other.exponent);
        (widest..).map(both).find(|both| both.len <= bins).expect("some width holds both")
    }

    /// The same bins merged until they are `2^exponent` wide.
    pub(super) fn at(self, exponent: i32) -> Self {
        let shift = exponent - self.exponent;
        Self::between(coarser(self.first, shift), coarser(self.last(), shift), exponent)
    }

    /// The margin that `target` of those counted in these bins exceed.
    pub(super) fn quantile(self, crossing: Crossing, target: f64) -> f32 {
        let (width, beyond) = (2f64.powi(self.exponent), crossing.beyond(target));
        ((self.first as f64 + crossing.bin as f64 + f64::from(beyond)) * width) as f32
    }
}

/// The bin that holds `bin` when the width has doubled `shift` times.
fn coarser(bin: i64, shift: i32) -> i64 {
    bin >> shift.min(63)
}
