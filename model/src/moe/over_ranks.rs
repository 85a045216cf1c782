//! Quantiles of margins that lie spread over ranks.
//!
//! Every rank forms the quantiles of its share of the experts, from what all ranks send it for
//! them, and tells the others. What is added are whole numbers, so the values are those that one
//! rank with all the margins would form, bit for bit.

use fulmar_ep::transport::{Buffer, Collective, Group, TransportError};
use rayon::prelude::*;

use super::grid::{GridBins, MarginGrid};
use super::quantile::{LiveBins, NO_BOUNDS, bounds, fair_share, wider};

/// As [`one_pass`](super::quantile::one_pass) on the margins of all ranks.
///
/// A rank sends its margins, or their counts where those are fewer words.
pub(super) fn one_pass(
    margins: &[f32],
    num_experts: usize,
    k: usize,
    bins: usize,
    ranks: &Group,
) -> Result<Vec<f32>, TransportError> {
    let tokens = margins.len() / num_experts;
    let [minus_low, high] = bounds(margins).map(|bound| u64::from(bound.to_bits()));
    let of_ranks = ranks.gather_u64("margin bounds", &[tokens as u64, minus_low, high])?;
    let all = of_ranks
        .iter()
        .map(|rank| [rank[1], rank[2]].map(|bits| f32::from_bits(bits as u32)))
        .fold(NO_BOUNDS, wider);
    let total: u64 = of_ranks.iter().map(|rank| rank[0]).sum();
    if total == 0 {
        return Ok(vec![0.0; num_experts]);
    }
    let live = LiveBins::new(all, bins);
    let rows = if tokens < bins {
        margins.iter().map(|margin| margin.to_bits()).collect()
    } else {
        let count = |margins: &[f32]| {
            let mut counts = vec![0; bins];
            live.count(margins.iter().copied(), &mut counts);
            counts.into_iter().map(word)
        };
        margins.par_chunks(tokens).flat_map_iter(count).collect()
    };
    let widths: Vec<usize> = of_ranks.iter().map(|rank| bins.min(rank[0] as usize)).collect();
    let target = fair_share(total, k, num_experts);
    by_expert(ranks, num_experts, rows, &widths, |rows| {
        let mut counts = vec![0; bins];
        for row in rows {
            if row.len() < bins {
                live.count(row.iter().map(|bits| f32::from_bits(*bits)), &mut counts);
            } else {
                add(&mut counts, row);
            }
        }
        live.quantile(&counts, target)
    })
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
    let counts = grid.in_bins(parts[ranks.rank()]).counts;
    let widths: Vec<usize> = parts.iter().map(|part| part.len).collect();
    let tokens = of_ranks.iter().map(|rank| rank[0]).sum();
    let target = fair_share(tokens, k, grid.num_experts);
    let rows = counts.into_iter().map(word).collect();
    by_expert(ranks, grid.num_experts, rows, &widths, |rows| {
        let mut counts = vec![0; whole.len];
        for (part, row) in parts.iter().zip(rows) {
            // A rank without margins has no row, wherever its bins would begin.
            if !row.is_empty() {
                add(&mut counts[(part.first - whole.first) as usize..], row);
            }
        }
        whole.quantile(&counts, target)
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

/// A count on one rank: not above its tokens in a step, which its memory holds.
fn word(count: u64) -> u32 {
    u32::try_from(count).expect("a rank counts fewer than 2^32 tokens in a step")
}
