//! What a step's tokens, spread over ranks, must give: the bits of one rank that has them all.

use std::time::Duration;

use fulmar_ep::transport::{Group, run_world};
use fulmar_model::moe::RoutingStats;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::moe::observation::Observation;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_tests::compare::assert_same_bits;

use crate::routing::routing_of;

const EXPERTS: usize = 4;
const K: usize = 1;
const BINS: usize = 40;
/// Below, at and above the bins, and a rank without any; five ranks are more than the experts.
const TOKENS: [&[usize]; 5] = [&[170], &[0, 93], &[33, 0, 40], &[39, 41, 0, 7, 120], &[0, 0]];

/// Margins [tokens, e] of tokens `first..first + tokens`; later ones lie farther apart.
fn margins(first: usize, tokens: usize) -> Vec<f32> {
    let margin = |e: usize, t: usize| {
        (((t * 37 + e * 11) % 101) as f32 - 60.0) * 0.013 * (1 + t / 20) as f32 - e as f32 * 0.05
    };
    (first..first + tokens).flat_map(|t| (0..EXPERTS).map(move |e| margin(e, t))).collect()
}

/// The pending values of every rank, `tokens[rank]` of the tokens on each, some with a padding token
/// beside them.
fn pending(
    range: MarginRange,
    tokens: &[usize],
    change: impl Fn(&mut Vec<f32>) + Sync,
) -> Vec<Vec<f32>> {
    let balancing = QuantileBalancing { bins: BINS, range };
    let on_ranks = run_world(tokens.len(), Duration::from_secs(20), |transport| {
        let ranks = Group::new(transport);
        let rank = ranks.rank();
        let (first, own) = (tokens[..rank].iter().sum(), tokens[rank]);
        let mut margins = margins(first, own);
        change(&mut margins);
        let mut valid = vec![true; own];
        if rank % 2 == 1 {
            margins.splice(0..0, [f32::NAN; EXPERTS]);
            valid.insert(0, false);
        }
        let routing = routing_of(&margins, EXPERTS, K);
        balancing.pending(&[], &balancing.observe(&Observation::new(&routing, &valid)), &ranks)
    });
    on_ranks.expect("no failure")
}

fn assert_bits_of_one_rank(range: MarginRange) {
    for tokens in TOKENS {
        let whole = pending(range, &[tokens.iter().sum()], |_| ());
        for (rank, found) in pending(range, tokens, |_| ()).iter().enumerate() {
            assert_same_bits(&format!("{tokens:?}, rank {rank}"), found, &whole[0]);
        }
    }
}

#[test]
fn one_pass_over_any_ranks_gives_the_bits_of_one_pass_over_all_margins() {
    assert_bits_of_one_rank(MarginRange::OnePass);
}

#[test]
fn grids_over_any_ranks_give_the_bits_of_one_grid() {
    assert_bits_of_one_rank(MarginRange::Grid);
}

#[test]
fn a_margin_that_is_nan_on_one_rank_is_seen_by_all() {
    let found = pending(MarginRange::OnePass, &[5, 3], |margins| {
        if margins.len() == 3 * EXPERTS {
            margins[1] = f32::NAN;
        }
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
