//! What a step's tokens, spread over ranks, must give: the bits of one rank that has them all.

use std::time::Duration;

use fulmar_ep::transport::{Group, run_world};
use fulmar_model::moe::RoutingStats;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::moe::grid::MarginGrid;
use fulmar_model::moe::quantile::{MarginRange, MarginStats, QuantileBalancing, one_pass};
use fulmar_tests::compare::assert_same_bits;

const EXPERTS: usize = 4;
const K: usize = 1;
const BINS: usize = 40;
/// Below, at and above the bins, and a rank without any; five ranks are more than the experts.
const TOKENS: [&[usize]; 5] = [&[170], &[0, 93], &[33, 0, 40], &[39, 41, 0, 7, 120], &[0, 0]];

/// Margins [e, tokens] of tokens `first..first + tokens`; later ones lie farther apart.
fn margins(first: usize, tokens: usize) -> Vec<f32> {
    let margin = |e: usize, t: usize| {
        (((t * 37 + e * 11) % 101) as f32 - 60.0) * 0.013 * (1 + t / 20) as f32 - e as f32 * 0.05
    };
    (0..EXPERTS).flat_map(|e| (first..first + tokens).map(move |t| margin(e, t))).collect()
}

/// The pending values of every rank, `tokens[rank]` of the tokens on each.
fn pending(
    range: MarginRange,
    tokens: &[usize],
    stats: impl Fn(Vec<f32>) -> MarginStats + Sync,
) -> Vec<Vec<f32>> {
    let balancing = QuantileBalancing { bins: BINS, range };
    let on_ranks = run_world(tokens.len(), Duration::from_secs(20), |transport| {
        let ranks = Group::new(transport);
        let first = tokens[..ranks.rank()].iter().sum();
        balancing.pending(&[], &stats(margins(first, tokens[ranks.rank()])), &ranks)
    });
    on_ranks.expect("no failure")
}

fn one_pass_stats(margins: Vec<f32>) -> MarginStats {
    MarginStats::OnePass { margins, num_experts: EXPERTS, k: K }
}

fn grid_stats(margins: Vec<f32>) -> MarginStats {
    MarginStats::Grid { grid: MarginGrid::count(&margins, EXPERTS, BINS), k: K }
}

#[test]
fn one_pass_over_any_ranks_gives_the_bits_of_one_pass_over_all_margins() {
    for tokens in TOKENS {
        let expected = one_pass(&margins(0, tokens.iter().sum()), EXPERTS, K, BINS);
        for (rank, found) in
            pending(MarginRange::OnePass, tokens, one_pass_stats).iter().enumerate()
        {
            assert_same_bits(&format!("{tokens:?}, rank {rank}"), found, &expected);
        }
    }
}

#[test]
fn grids_over_any_ranks_give_the_bits_of_one_grid() {
    for tokens in TOKENS {
        let whole = MarginGrid::count(&margins(0, tokens.iter().sum()), EXPERTS, BINS);
        let expected = whole.quantiles(K);
        for (rank, found) in pending(MarginRange::Grid, tokens, grid_stats).iter().enumerate() {
            assert_same_bits(&format!("{tokens:?}, rank {rank}"), found, &expected);
        }
    }
}

#[test]
fn a_margin_that_is_nan_on_one_rank_is_seen_by_all() {
    let found = pending(MarginRange::OnePass, &[5, 3], |mut margins| {
        if margins.len() == 3 * EXPERTS {
            margins[1] = f32::NAN;
        }
        one_pass_stats(margins)
    });
    assert!(found.concat().iter().all(|beta| beta.is_nan()), "{found:?}");
}

#[test]
fn routing_statistics_add_over_ranks_in_their_order() {
    let of_rank = |rank: usize| {
        let layer = |layer: usize| RoutingStats {
            tokens: (u32::MAX as usize + rank + layer) as u64,
            expert_counts: (0..EXPERTS).map(|e| (rank * 10 + layer + e) as u64).collect(),
            probability_sums: (0..EXPERTS).map(|e| 0.1 * (rank + e) as f64 + 1e9).collect(),
            z_sum: 0.3 * (rank + layer) as f64,
        };
        vec![layer(0), layer(1)]
    };
    for ranks in [1, 3] {
        let found = run_world(ranks, Duration::from_secs(20), |transport| {
            let ranks = Group::new(transport);
            RoutingStats::over_ranks(of_rank(ranks.rank()), &ranks)
        });
        let mut expected = of_rank(0);
        for rank in 1..ranks {
            expected.iter_mut().zip(of_rank(rank)).for_each(|(sum, layer)| sum.add(&layer));
        }
        assert_eq!(found.expect("no failure"), vec![expected; ranks]);
    }
}
