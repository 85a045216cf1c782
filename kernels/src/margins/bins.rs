/// Neighbouring bins of equal width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MarginBins {
    /// A range cut into bins: a margin falls into `floor((margin - low) / width)`, in f32. On a
    /// device that rounds quotients in its own way a margin at an edge may fall into the bin beside
    /// it.
    Range {
        /// Where the first bin begins.
        low: f32,
        /// The width of a bin.
        width: f32,
        /// How many.
        len: usize,
    },
    /// Bins of width `2^exponent` aligned at zero: a margin falls into
    /// `floor(margin / 2^exponent) - first`, which is exact.
    Aligned {
        /// Of the width; on a device at least -126 and at most 126.
        exponent: i32,
        /// Widths from zero to the first bin.
        first: i64,
        /// How many.
        len: usize,
    },
}

impl MarginBins {
    /// How many bins there are.
    pub fn count(self) -> usize {
        match self {
            Self::Range { len, .. } | Self::Aligned { len, .. } => len,
        }
    }

    /// The bin of a margin; what lies outside falls into one of the ends, NaN into the first.
    #[inline(always)]
    pub fn bin_of(self, margin: f32) -> i32 {
        let last = self.count() as i32 - 1;
        match self {
            // `max` and the cast pass over NaN.
            Self::Range { low, width, .. } => {
                (((margin - low) / width).floor().max(0.0) as i32).min(last)
            }
            Self::Aligned { exponent, first, .. } => {
                let bin = aligned_bin(margin, exponent).saturating_sub(first);
                bin.clamp(0, i64::from(last)) as i32
            }
        }
    }
}

/// How many widths of `2^exponent` the bin of a margin lies from zero.
///
/// Scaling by a power of two is exact in f64, so a margin on an edge falls into one bin at every
/// width.
#[inline(always)]
pub fn aligned_bin(margin: f32, exponent: i32) -> i64 {
    (f64::from(margin) * 2f64.powi(-exponent)).floor() as i64
}
