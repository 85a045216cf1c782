//! Histograms of margins, expert by expert, and the bins in which counts from the top cross a rank.
//!
//! The margin of a token and an expert is the unbiased score less the best biased score that was not
//! chosen.

mod bins;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

pub use bins::{MarginBins, aligned_bin};
pub(crate) use check::checks;

use crate::bridge::Bridge;

/// The margins of one layer over some tokens, as what they are formed from; outside every graph.
#[derive(Debug, Clone)]
pub struct Margins {
    /// Scores [t, e], without bias.
    logits: Tensor<2>,
    /// The best biased score that was not chosen `[t]`.
    alpha: Tensor<1>,
    /// `[t]`, 0 for padding, whose margins do not count and are not read.
    token_valid: Tensor<1, Int>,
}

impl Margins {
    /// From `logits` [t, e], `alpha` `[t]` and `token_valid` `[t]`, which is 0 for padding.
    ///
    /// # Panics
    /// If the shapes disagree.
    pub fn new(logits: Tensor<2>, alpha: Tensor<1>, token_valid: Tensor<1, Int>) -> Self {
        let [t, _] = logits.dims();
        for (name, [found]) in [("alpha", alpha.dims()), ("token_valid", token_valid.dims())] {
            assert_eq!(
                found, t,
                "Margins: `{name}` has {found} entries, needed {t} as in `logits`"
            );
        }
        Self { logits: logits.inner(), alpha: alpha.inner(), token_valid: token_valid.inner() }
    }

    /// Experts.
    pub fn num_experts(&self) -> usize {
        self.logits.dims()[1]
    }

    /// The margins themselves, in the order of the tokens [e, valid tokens].
    pub fn by_expert(&self) -> Tensor<2> {
        let valid = self.token_valid.clone().not_equal_elem(0).argwhere();
        let [tokens, _] = valid.dims();
        let valid = valid.reshape([tokens]);
        let alpha = self.alpha.clone().select(0, valid.clone()).reshape([1, tokens]);
        self.logits.clone().select(0, valid).swap_dims(0, 1) - alpha
    }

    /// How many margins of each expert lie in each bin [e, bins].
    ///
    /// # Panics
    /// If there are no bins, or 2^31 tokens or bins of all experts or more.
    pub fn histogram(self, bins: MarginBins) -> Tensor<2, Int> {
        self.assert_countable("Margins::histogram", bins);
        let Self { logits, alpha, token_valid } = self;
        Tensor::from_dispatch(Dispatch::margin_histogram(
            logits.into_dispatch(),
            alpha.into_dispatch(),
            token_valid.into_dispatch(),
            bins,
        ))
    }

    /// [`crossings`](self::crossings()) of the [`histogram`](Self::histogram), which a CPU never
    /// holds as a whole.
    ///
    /// # Panics
    /// As [`histogram`](Self::histogram).
    pub fn crossings(self, bins: MarginBins, rank: u64) -> Tensor<2, Int> {
        self.assert_countable("Margins::crossings", bins);
        let Self { logits, alpha, token_valid } = self;
        Tensor::from_dispatch(Dispatch::margin_crossings(
            logits.into_dispatch(),
            alpha.into_dispatch(),
            token_valid.into_dispatch(),
            bins,
            word(rank),
        ))
    }

    fn assert_countable(&self, op: &str, bins: MarginBins) {
        let ([t, e], len) = (self.logits.dims(), bins.count());
        assert!(i32::try_from(t).is_ok(), "{op}: {t} tokens, needed less than 2^31");
        assert!(len > 0, "{op}: no bins, needed at least 1");
        let is_countable = e.max(1).checked_mul(len).is_some_and(|all| i32::try_from(all).is_ok());
        assert!(is_countable, "{op}: {len} bins for each of {e} experts, needed less than 2^31");
    }
}

/// For each row of `counts` the last bin whose count from the top reaches `rank`.
///
/// # Shapes
/// `counts` [e, bins]; result [e, 3]: the bin, the count from the top down to and with it, and its
/// own count. Where all counts do not reach `rank`: the first bin, all counts and its own.
///
/// # Panics
/// If there are no bins.
///
/// # Source
/// SPEC section 2, quantile balancing.
pub fn crossings(counts: Tensor<2, Int>, rank: u64) -> Tensor<2, Int> {
    assert!(counts.dims()[1] > 0, "crossings: no bins, needed at least 1");
    Tensor::from_dispatch(Dispatch::crossings(counts.inner().into_dispatch(), word(rank)))
}

/// Counts fit in an i32, and what is above them is not reached.
fn word(rank: u64) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

/// The meaning of [`Margins::histogram`] in plain tensor operations.
pub fn reference(margins: Margins, bins: MarginBins) -> Tensor<2, Int> {
    let Margins { logits, alpha, token_valid } = margins;
    let ([t, e], len) = (logits.dims(), bins.count());
    let margins = logits - alpha.reshape([t, 1]);
    let bin = match bins {
        MarginBins::Range { low, width, .. } => margins.sub_scalar(low).div_scalar(width).floor(),
        MarginBins::Aligned { exponent, first, .. } => {
            margins.mul_scalar(2f64.powi(-exponent)).floor().sub_scalar(first as f64)
        }
    };
    let bin = bin.clamp(0.0, (len - 1) as f64).int();
    let padding = token_valid.clone().equal_elem(0).reshape([t, 1]).expand([t, e]);
    let bin = bin.mask_fill(padding, 0);
    let one = token_valid.not_equal_elem(0).int().reshape([t, 1]).expand([t, e]);
    let counts = Tensor::<2, Int>::zeros([e, len], &bin.device());
    counts.scatter(1, bin.swap_dims(0, 1), one.swap_dims(0, 1), IndexingUpdateOp::Add)
}

/// The meaning of [`crossings`](self::crossings()) in plain tensor operations.
pub fn crossings_reference(counts: Tensor<2, Int>, rank: i32) -> Tensor<2, Int> {
    let from_top = counts.clone().flip([1]).cumsum(1).flip([1]);
    let reached = from_top.clone().greater_equal_elem(rank).int().sum_dim(1);
    // Counts from the top fall with the bin: those that reach come first.
    let bin = reached.sub_scalar(1).clamp_min(0);
    Tensor::cat(vec![bin.clone(), from_top.gather(1, bin.clone()), counts.gather(1, bin)], 1)
}

/// The operations as Burn dispatches them. Without `Autodiff`: counts have no gradient.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait MarginOps: Backend {
    /// See [`Margins::histogram`].
    fn margin_histogram(
        logits: FloatTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
        bins: MarginBins,
    ) -> IntTensor<Self>;

    /// See [`Margins::crossings`].
    fn margin_crossings(
        logits: FloatTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
        bins: MarginBins,
        rank: i32,
    ) -> IntTensor<Self>;

    /// See [`crossings`](self::crossings()).
    fn crossings(counts: IntTensor<Self>, rank: i32) -> IntTensor<Self>;
}

/// What a backend computes; the defaults are the references.
pub trait MarginKernel: Bridge {
    /// The counts [e, bins].
    fn histogram(
        logits: FloatTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
        bins: MarginBins,
    ) -> IntTensor<Self> {
        let token_valid = Self::lift_int(token_valid);
        let margins = Margins { logits: Self::lift(logits), alpha: Self::lift(alpha), token_valid };
        Self::lower_int(reference(margins, bins))
    }

    /// The crossings [e, 3] of the histogram.
    fn cross_margins(
        logits: FloatTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
        bins: MarginBins,
        rank: i32,
    ) -> IntTensor<Self> {
        let counts = <Self as MarginKernel>::histogram(logits, alpha, token_valid, bins);
        <Self as MarginKernel>::cross(counts, rank)
    }

    /// The crossings [e, 3] of counts [e, bins].
    fn cross(counts: IntTensor<Self>, rank: i32) -> IntTensor<Self> {
        Self::lower_int(crossings_reference(Self::lift_int(counts), rank))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl MarginOps for $backend {
            fn margin_histogram(
                logits: FloatTensor<Self>,
                alpha: FloatTensor<Self>,
                token_valid: IntTensor<Self>,
                bins: MarginBins,
            ) -> IntTensor<Self> {
                <Self as MarginKernel>::histogram(logits, alpha, token_valid, bins)
            }

            fn margin_crossings(
                logits: FloatTensor<Self>,
                alpha: FloatTensor<Self>,
                token_valid: IntTensor<Self>,
                bins: MarginBins,
                rank: i32,
            ) -> IntTensor<Self> {
                <Self as MarginKernel>::cross_margins(logits, alpha, token_valid, bins, rank)
            }

            fn crossings(counts: IntTensor<Self>, rank: i32) -> IntTensor<Self> {
                <Self as MarginKernel>::cross(counts, rank)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
