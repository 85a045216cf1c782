//! A margin histogram whose bins do not depend on what came first.

use rayon::prelude::*;

use super::quantile::{bounds, crossing, fair_share};

/// Bins are never narrower than 2 to this power, about the guard of the one-pass range.
const MIN_EXPONENT: i32 = -20;

/// Counts of margins in bins of width `2^exponent` aligned at zero.
///
/// When the range outgrows the number of bins the width doubles and neighbours merge. The final
/// width is the least that holds the whole range, so counts depend neither on the order of the
/// tokens nor on their split over micro-batches and ranks (SPEC section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarginGrid {
    pub(super) bins: GridBins,
    pub(super) num_experts: usize,
    /// [e, bins].
    pub(super) counts: Vec<u64>,
}

impl MarginGrid {
    /// The histogram of margins [e, tokens] in at most `bins` bins.
    ///
    /// # Panics
    /// If a margin is not finite; a router has no margins for such scores.
    pub fn count(margins: &[f32], num_experts: usize, bins: usize) -> Self {
        if margins.is_empty() {
            return Self { bins: GridBins::NONE, num_experts, counts: Vec::new() };
        }
        let [minus_low, high] = bounds(margins);
        assert!(minus_low.is_finite() && high.is_finite(), "margins from {} to {high}", -minus_low);
        let bins = GridBins::of_range(-minus_low, high, bins);
        let mut counts = vec![0; num_experts * bins.len];
        let tokens = margins.len() / num_experts;
        counts.par_chunks_mut(bins.len).zip(margins.par_chunks(tokens)).for_each(
            |(counts, margins)| {
                for &margin in margins {
                    counts[(bin_of(margin, bins.exponent) - bins.first) as usize] += 1;
                }
            },
        );
        Self { bins, num_experts, counts }
    }

    /// The histogram of both sets of tokens in at most `bins` bins.
    #[must_use]
    pub fn merge(self, other: Self, bins: usize) -> Self {
        let bins = self.bins.join(other.bins, bins);
        let mut whole = self.in_bins(bins);
        other.add_to(&mut whole.counts, bins);
        whole
    }

    /// For each expert the margin that exactly `tokens k / experts` tokens exceed; 0 without
    /// tokens.
    pub fn quantiles(&self, k: usize) -> Vec<f32> {
        if self.bins.len == 0 {
            return vec![0.0; self.num_experts];
        }
        let target = fair_share(self.tokens(), k, self.num_experts);
        self.counts.chunks(self.bins.len).map(|counts| self.bins.quantile(counts, target)).collect()
    }

    /// Tokens counted.
    pub fn tokens(&self) -> u64 {
        self.counts.iter().take(self.bins.len).sum()
    }

    /// The same counts in bins that are as wide or wider, and hold all of them.
    pub(super) fn in_bins(&self, bins: GridBins) -> Self {
        let mut counts = vec![0; self.num_experts * bins.len];
        self.add_to(&mut counts, bins);
        Self { bins, num_experts: self.num_experts, counts }
    }

    fn add_to(&self, counts: &mut [u64], bins: GridBins) {
        if self.bins.len == 0 {
            return;
        }
        let shift = bins.exponent - self.bins.exponent;
        for (to, from) in counts.chunks_mut(bins.len).zip(self.counts.chunks(self.bins.len)) {
            for (bin, count) in (self.bins.first..).zip(from) {
                to[(coarser(bin, shift) - bins.first) as usize] += count;
            }
        }
    }
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
        let fits = |exponent| bin_of(high, exponent) - bin_of(low, exponent) < bins as i64;
        let exponent = (MIN_EXPONENT..).find(|&e| fits(e)).expect("finite margins fit some width");
        Self::between(bin_of(low, exponent), bin_of(high, exponent), exponent)
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
    pub(super) fn quantile(self, counts: &[u64], target: f64) -> f32 {
        let (bin, beyond) = crossing(counts, target);
        let width = 2f64.powi(self.exponent);
        ((self.first as f64 + bin as f64 + f64::from(beyond)) * width) as f32
    }
}

/// Scaling by a power of two is exact in f64, so a margin on an edge falls into one bin at every
/// width.
fn bin_of(margin: f32, exponent: i32) -> i64 {
    (f64::from(margin) * 2f64.powi(-exponent)).floor() as i64
}

/// The bin that holds `bin` when the width has doubled `shift` times.
fn coarser(bin: i64, shift: i32) -> i64 {
    bin >> shift.min(63)
}
