//! Quantiles of margins that lie spread over ranks.
//!
//! Every rank forms the quantiles of its share of the experts, from what all ranks send it for
//! them, and tells the others. What is added are whole numbers, so the values are those that one
//! rank with all the margins would form, bit for bit.

use burn::tensor::{Int, Tensor};
use fulmar_ep::transport::{Buffer, Collective, Group, TransportError};
use rayon::prelude::*;

use super::grid::{GridBins, MarginGrid};
use super::observation::LayerMargins;
use super::quantile::{Crossing, LiveBins, fair_share, least_count};

/// As [`one_pass`](super::quantile::one_pass) on the margins of all ranks.
///
/// A rank sends its margins, or their counts where those are fewer words.
pub(super) fn one_pass(
    margins: &LayerMargins,
    k: usize,
    bins: usize,
    ranks: &Group,
) -> Result<Vec<f32>, TransportError> {
    let num_experts = margins.margins.num_experts();
    let [low, high] = margins.bounds.map(|bound| u64::from(bound.to_bits()));
    let of_ranks = ranks.gather_u64("margin bounds", &[margins.tokens, low, high])?;
    let total: u64 = of_ranks.iter().map(|rank| rank[0]).sum();
    if total == 0 {
        return Ok(vec![0.0; num_experts]);
    }
    let live = LiveBins::new(joint_bounds(&of_ranks), bins);
    if !live.is_finite() {
        return Ok(vec![f32::NAN; num_experts]);
    }
    let rows = rows_of(margins, live, bins);
    let widths: Vec<usize> = of_ranks.iter().map(|rank| bins.min(rank[0] as usize)).collect();
    let target = fair_share(total, k, num_experts);
    by_expert(ranks, num_experts, rows, &widths, |rows| {
        let mut counts = vec![0; bins];
        for row in rows {
            if row.len() < bins {
                for bits in *row {
                    counts[live.bins().bin_of(f32::from_bits(*bits)) as usize] += 1;
                }
            } else {
                add(&mut counts, row);
            }
        }
        live.quantile(Crossing::find(&counts, least_count(target)), target)
    })
}

/// The least and the greatest margin of all ranks, NaN if one's are, from what each says of its
/// tokens, least and greatest.
fn joint_bounds(of_ranks: &[Vec<u64>]) -> [f32; 2] {
    let bounds = of_ranks.iter().map(|rank| [rank[1], rank[2]].map(|v| f32::from_bits(v as u32)));
    // Unlike `f32::min` and `f32::max` these do not pass over NaN.
    let least = |left: f32, right: f32| if left < right || left.is_nan() { left } else { right };
    let most = |left: f32, right: f32| if left > right || left.is_nan() { left } else { right };
    bounds.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], [other_low, other_high]| {
        [least(low, other_low), most(high, other_high)]
    })
}

/// For each expert this rank's margins as bits, or their counts in all bins where those are fewer.
fn rows_of(margins: &LayerMargins, live: LiveBins, bins: usize) -> Vec<u32> {
    if margins.tokens == 0 {
        Vec::new()
    } else if margins.tokens < bins as u64 {
        let margins = margins.margins.by_expert().into_data();
        margins.iter::<f32>().map(f32::to_bits).collect()
    } else {
        words(margins.margins.clone().histogram(live.bins()))
    }
}

/// As [`MarginGrid::quantiles`] on the grids of all ranks merged.
///
/// A rank sends the bins that its margins reach, at the width that holds those of all.
pub(super) fn grid(
    grid: &MarginGrid,
    k: usize,
    bins: usize,
    ranks: &Group,
) -> Result<Vec<f32>, TransportError> {
    let GridBins { exponent, first, len } = grid.bins;
    let own = [grid.tokens(), exponent as u64, first as u64, len as u64];
    let of_ranks = ranks.gather_u64("margin grids", &own)?;
    let bins_of = |rank: &Vec<u64>| GridBins {
        exponent: rank[1] as i32,
        first: rank[2] as i64,
        len: rank[3] as usize,
    };
    let whole = of_ranks.iter().map(bins_of).reduce(|left, right| left.join(right, bins));
    let whole = whole.expect("a group has members");
    if whole.len == 0 {
        return Ok(vec![0.0; grid.num_experts]);
    }
    let parts: Vec<GridBins> =
        of_ranks.iter().map(|rank| bins_of(rank).at(whole.exponent)).collect();
    let rows = grid.in_bins(parts[ranks.rank()]).map_or_else(Vec::new, words);
    let widths: Vec<usize> = parts.iter().map(|part| part.len).collect();
    let tokens = of_ranks.iter().map(|rank| rank[0]).sum();
    let target = fair_share(tokens, k, grid.num_experts);
    by_expert(ranks, grid.num_experts, rows, &widths, |rows| {
        let mut counts = vec![0; whole.len];
        for (part, row) in parts.iter().zip(rows) {
            // A rank without margins has no row, wherever its bins would begin.
            if !row.is_empty() {
                add(&mut counts[(part.first - whole.first) as usize..], row);
            }
        }
        whole.quantile(Crossing::find(&counts, least_count(target)), target)
    })
}

/// The value `[e]` that `of_rows` makes of each expert's rows, one from each rank.
///
/// `rows` [e, `widths[rank]`] are this rank's; the widths of all are known to all.
fn by_expert(
    ranks: &Group,
    num_experts: usize,
    rows: Vec<u32>,
    widths: &[usize],
    of_rows: impl Fn(&[&[u32]]) -> f32 + Sync,
) -> Result<Vec<f32>, TransportError> {
    let first = |rank: usize| rank * num_experts / ranks.size();
    let shares: Vec<usize> = (0..ranks.size()).map(|rank| first(rank + 1) - first(rank)).collect();
    let (own, width) = (shares[ranks.rank()], widths[ranks.rank()]);
    let send_words = shares.iter().map(|experts| experts * width).collect();
    let recv_words = widths.iter().map(|width| own * width).collect();
    let send = Buffer::host(rows);
    let collective = Collective::AllToAllV { send, send_words, recv_words };
    let arrived = ranks.run("margins by expert", collective)?;
    let mut rest = arrived.as_slice();
    let of_ranks = widths.iter().map(|&width| {
        let (of_rank, after) = rest.split_at(own * width);
        rest = after;
        (of_rank, width)
    });
    let of_ranks: Vec<(&[u32], usize)> = of_ranks.collect();
    let value = |expert: usize| {
        let rows = of_ranks.iter().map(|&(rows, width)| &rows[expert * width..][..width]);
        of_rows(&rows.collect::<Vec<_>>()).to_bits()
    };
    let send = Buffer::host((0..own).into_par_iter().map(value).collect());
    let all = ranks.run("quantiles", Collective::AllGather { send, words: shares })?;
    Ok(all.into_iter().map(f32::from_bits).collect())
}

fn add(counts: &mut [u64], more: &[u32]) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count += u64::from(*more);
    }
}

/// Counts as they travel; none is negative.
fn words(counts: Tensor<2, Int>) -> Vec<u32> {
    counts.into_data().iter::<u32>().collect()
}
