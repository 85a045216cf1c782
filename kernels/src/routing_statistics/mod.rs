//! What the routing of a micro-batch adds up to, expert by expert.

mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor, TensorData, Transaction};

pub(crate) use check::checks;

use crate::bridge::Bridge;

/// Sums over the valid tokens of one layer, on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutingStatistics {
    /// Valid tokens.
    pub tokens: u64,
    /// Valid assignments of each expert `[e]`.
    pub expert_counts: Vec<u64>,
    /// Sum over tokens of each expert's share in a softmax of the scores `[e]`.
    pub probability_sums: Vec<f64>,
    /// Sum over tokens of logsumexp(scores)^2.
    pub z_sum: f64,
    /// The least and the greatest `logits - alpha`: both NaN if one of them is not finite,
    /// infinity and its negative if there is none.
    pub margin_bounds: [f32; 2],
}

/// The parts of [`RoutingStatistics`] on the device, a row for each of a few blocks of tokens.
#[derive(Debug, Clone)]
pub struct BlockStatistics {
    /// Valid assignments of each expert, then valid tokens [blocks, e + 1].
    pub counts: Tensor<2, Int>,
    /// Each expert's sum of softmax shares, then the sum of logsumexp^2 [blocks, e + 1].
    pub sums: Tensor<2>,
    /// The negative of the least margin, and the greatest [blocks, 2].
    pub bounds: Tensor<2>,
}

/// Reads the scores, the choice and `alpha` of [`route`](crate::route::route()) once and adds up
/// what is logged and what balancing needs: only a few values for each expert leave the device.
/// Nothing is differentiated; tracked scores are taken out of their graph.
///
/// What padding holds is not read. An id of -1 is no assignment.
///
/// # Shapes
/// `logits` [t, e], `selected` [t, k], `alpha` `[t]`, `token_valid` `[t]` with 0 for padding.
///
/// # Panics
/// If the shapes disagree; on a CPU also if an id is outside -1 to e - 1. Other backends read such
/// an id as -1.
///
/// # Source
/// SPEC section 2, quantile balancing, and the router figures that are logged.
pub fn routing_statistics(
    logits: Tensor<2>,
    selected: Tensor<2, Int>,
    alpha: Tensor<1>,
    token_valid: Tensor<1, Int>,
) -> RoutingStatistics {
    block_statistics(logits, selected, alpha, token_valid).read()
}

/// The parts of [`routing_statistics`](self::routing_statistics()), left on the device.
///
/// # Panics
/// As there.
pub fn block_statistics(
    logits: Tensor<2>,
    selected: Tensor<2, Int>,
    alpha: Tensor<1>,
    token_valid: Tensor<1, Int>,
) -> BlockStatistics {
    let ([t, _], [found, _]) = (logits.dims(), selected.dims());
    let op = "routing_statistics";
    assert_eq!(found, t, "{op}: `selected` has {found} rows, needed {t} as in `logits`");
    for (name, [found]) in [("alpha", alpha.dims()), ("token_valid", token_valid.dims())] {
        assert_eq!(found, t, "{op}: `{name}` has {found} entries, needed {t} as in `logits`");
    }
    let (counts, sums, bounds) = Dispatch::routing_statistics(
        logits.inner().into_dispatch(),
        selected.inner().into_dispatch(),
        alpha.inner().into_dispatch(),
        token_valid.inner().into_dispatch(),
    );
    BlockStatistics {
        counts: Tensor::from_dispatch(counts),
        sums: Tensor::from_dispatch(sums),
        bounds: Tensor::from_dispatch(bounds),
    }
}

impl BlockStatistics {
    /// The sums of all blocks, added in order in f64, by one transfer.
    pub fn read(self) -> RoutingStatistics {
        let [_, columns] = self.counts.dims();
        let transfer = Transaction::default().register(self.counts).register(self.sums);
        let read: Vec<TensorData> = transfer.register(self.bounds).execute();
        let (mut counts, mut sums) = (vec![0; columns], vec![0.0; columns]);
        for (i, count) in read[0].iter::<u64>().enumerate() {
            counts[i % columns] += count;
        }
        for (i, sum) in read[1].iter::<f64>().enumerate() {
            sums[i % columns] += sum;
        }
        let bounds: Vec<f32> = read[2].iter::<f32>().collect();
        let greatest = |side: usize| {
            let of_blocks = bounds.chunks(2).map(|bounds| bounds[side]);
            // Unlike `f32::max` it does not pass over NaN.
            of_blocks
                .fold(f32::NEG_INFINITY, |max, v| if max > v || max.is_nan() { max } else { v })
        };
        let margin_bounds = [-greatest(0), greatest(1)];
        let tokens = counts.pop().expect("the last column");
        let z_sum = sums.pop().expect("the last column");
        RoutingStatistics {
            tokens,
            expert_counts: counts,
            probability_sums: sums,
            z_sum,
            margin_bounds,
        }
    }
}

/// The meaning of [`block_statistics`](self::block_statistics()) in plain tensor operations: one
/// block.
pub fn reference(
    logits: Tensor<2>,
    selected: Tensor<2, Int>,
    alpha: Tensor<1>,
    token_valid: Tensor<1, Int>,
) -> BlockStatistics {
    let ([t, e], [_, k], device) = (logits.dims(), selected.dims(), logits.device());
    let valid = token_valid.clone().not_equal_elem(0).int().reshape([t, 1]);
    let padding = token_valid.equal_elem(0).reshape([t, 1]);
    // Masked, not multiplied by 0: what padding holds may be NaN.
    let scores = logits.clone().mask_fill(padding.clone().expand([t, e]), 0.0);
    let max = scores.clone().max_dim(1);
    let exp = (scores - max.clone()).exp();
    let total = exp.clone().sum_dim(1);
    let log_sum_exp = max + total.clone().log();
    let terms = Tensor::cat(vec![exp / total, log_sum_exp.clone() * log_sum_exp], 1);
    let sums = (terms * valid.clone().float()).sum_dim(0);

    let experts = Tensor::<1, Int>::arange(0..e as i64, &device).reshape([1, e]).expand([t, e]);
    let choices = (0..k).map(|slot| {
        let ids = selected.clone().narrow(1, slot, 1).expand([t, e]);
        ids.equal(experts.clone()).int()
    });
    let choices = choices.fold(Tensor::zeros([t, e], &device), |sum, slot| sum + slot);
    let columns = Tensor::cat(vec![choices, Tensor::ones([t, 1], &device)], 1);
    let counts = (columns * valid).sum_dim(0);

    let margins = logits - alpha.reshape([t, 1]);
    let not_finite = margins.clone().is_finite().bool_not();
    let padding = padding.expand([t, e]);
    let has_none = not_finite.bool_and(padding.clone().bool_not()).any();
    let bound = |values: Tensor<2>| {
        let values = values.mask_fill(padding.clone(), f32::NEG_INFINITY);
        values.max().mask_fill(has_none.clone(), f32::NAN).reshape([1, 1])
    };
    let bounds = Tensor::cat(vec![bound(-margins.clone()), bound(margins)], 1);
    BlockStatistics { counts, sums, bounds }
}

/// `counts`, `sums` and `bounds` of [`BlockStatistics`] as a backend holds them.
type Parts<B> = (IntTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// The operation as Burn dispatches it. Without `Autodiff`: it has no gradient.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait RoutingStatisticsOps: Backend {
    /// See [`block_statistics`](self::block_statistics()): counts, sums and bounds.
    fn routing_statistics(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
    ) -> (IntTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// What a backend computes; the default is the reference.
pub trait RoutingStatisticsKernel: Bridge {
    /// Counts, sums and bounds.
    fn forward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        alpha: FloatTensor<Self>,
        token_valid: IntTensor<Self>,
    ) -> (IntTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (selected, token_valid) = (Self::lift_int(selected), Self::lift_int(token_valid));
        let BlockStatistics { counts, sums, bounds } =
            reference(Self::lift(logits), selected, Self::lift(alpha), token_valid);
        (Self::lower_int(counts), Self::lower(sums), Self::lower(bounds))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl RoutingStatisticsOps for $backend {
            fn routing_statistics(
                logits: FloatTensor<Self>,
                selected: IntTensor<Self>,
                alpha: FloatTensor<Self>,
                token_valid: IntTensor<Self>,
            ) -> Parts<Self> {
                <Self as RoutingStatisticsKernel>::forward(logits, selected, alpha, token_valid)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
