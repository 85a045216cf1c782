//! A margin histogram whose bins do not depend on what came first.

use rayon::prelude::*;

use super::quantile::crossing;

/// Bins are never narrower than 2 to this power, about the guard of the one-pass range.
const MIN_EXPONENT: i32 = -20;

/// Counts of margins in bins of width `2^exponent` aligned at zero.
///
/// When the range outgrows the number of bins the width doubles and neighbours merge. The final
/// width is the least that holds the whole range, so counts depend neither on the order of the
/// tokens nor on their split over micro-batches and ranks (SPEC section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarginGrid {
    exponent: i32,
    first_bin: i64,
    num_experts: usize,
    num_bins: usize,
    /// `[e, num_bins]`.
    counts: Vec<u64>,
}

impl MarginGrid {
    /// The histogram of margins [e, tokens] in at most `bins` bins.
    pub fn count(margins: &[f32], num_experts: usize, bins: usize) -> Self {
        let low = margins.iter().copied().fold(f32::INFINITY, f32::min);
        let high = margins.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if margins.is_empty() {
            let counts = Vec::new();
            return Self { exponent: MIN_EXPONENT, first_bin: 0, num_experts, num_bins: 0, counts };
        }
        let fits = |exponent| bin_of(high, exponent) - bin_of(low, exponent) < bins as i64;
        let exponent = (MIN_EXPONENT..).find(|&e| fits(e)).expect("finite margins fit some width");
        let first_bin = bin_of(low, exponent);
        let num_bins = (bin_of(high, exponent) - first_bin + 1) as usize;
        let mut counts = vec![0; num_experts * num_bins];
        let tokens = margins.len() / num_experts;
        counts.par_chunks_mut(num_bins).zip(margins.par_chunks(tokens)).for_each(
            |(counts, margins)| {
                for &margin in margins {
                    counts[(bin_of(margin, exponent) - first_bin) as usize] += 1;
                }
            },
        );
        Self { exponent, first_bin, num_experts, num_bins, counts }
    }

    /// The histogram of both sets of tokens in at most `bins` bins.
    #[must_use]
    pub fn merge(self, other: Self, bins: usize) -> Self {
        if self.num_bins == 0 || other.num_bins == 0 {
            return if self.num_bins == 0 { other } else { self };
        }
        let widest = self.exponent.max(other.exponent);
        let fits = |exponent| {
            let (first, last) = self.range_with(&other, exponent);
            last - first < bins as i64
        };
        let exponent = (widest..).find(|&e| fits(e)).expect("some width holds both");
        let (first_bin, last_bin) = self.range_with(&other, exponent);
        let num_bins = (last_bin - first_bin + 1) as usize;
        let mut counts = vec![0; self.num_experts * num_bins];
        for part in [&self, &other] {
            part.add_to(&mut counts, exponent, first_bin, num_bins);
        }
        Self { exponent, first_bin, num_experts: self.num_experts, num_bins, counts }
    }

    /// For each expert the margin that exactly `tokens k / experts` tokens exceed.
    pub fn quantiles(&self, k: usize) -> Vec<f32> {
        if self.num_bins == 0 {
            return vec![0.0; self.num_experts];
        }
        let target = self.tokens() as f64 * k as f64 / self.num_experts as f64;
        let width = 2f64.powi(self.exponent);
        let beta = |counts| {
            let (bin, beyond) = crossing(counts, target);
            ((self.first_bin as f64 + bin as f64 + f64::from(beyond)) * width) as f32
        };
        self.counts.chunks(self.num_bins).map(beta).collect()
    }

    /// Tokens counted.
    pub fn tokens(&self) -> u64 {
        self.counts.iter().take(self.num_bins).sum()
    }

    /// First and last bin of both histograms at a width not narrower than either's.
    fn range_with(&self, other: &Self, exponent: i32) -> (i64, i64) {
        let range = |grid: &Self| {
            let shift = exponent - grid.exponent;
            let last = grid.first_bin + grid.num_bins as i64 - 1;
            (coarser(grid.first_bin, shift), coarser(last, shift))
        };
        let ((a, b), (c, d)) = (range(self), range(other));
        (a.min(c), b.max(d))
    }

    fn add_to(&self, counts: &mut [u64], exponent: i32, first_bin: i64, num_bins: usize) {
        let shift = exponent - self.exponent;
        for (to, from) in counts.chunks_mut(num_bins).zip(self.counts.chunks(self.num_bins)) {
            for (bin, count) in from.iter().enumerate() {
                to[(coarser(self.first_bin + bin as i64, shift) - first_bin) as usize] += count;
            }
        }
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
