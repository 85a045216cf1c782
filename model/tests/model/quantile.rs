use burn::tensor::Tensor;
use fulmar_ep::transport::Group;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::moe::observation::Observation;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_tests::compare::{assert_close, assert_same_bits, assert_within};
use fulmar_tests::golden::{GoldenFile, cases};

use crate::routing::routing_of;

/// The pending values of one rank.
fn pending(balancing: QuantileBalancing, observation: &Observation<'_>) -> Vec<f32> {
    let stats = balancing.observe(observation);
    balancing.pending(&[], &stats, &Group::solo()).expect("a single rank")
}

#[test]
fn golden_betas_agree_in_one_pass_and_on_the_grid_within_a_bin() {
    for path in cases("quantile") {
        let file = GoldenFile::read(&path);
        let [tokens, experts] = file.shape("margin").try_into().expect("[t, e]");
        let margins = file.floats("margin");
        let routing = routing_of(margins, experts, file.setting("top_k"));
        let observation = Observation::new(&routing, &vec![true; tokens]);
        let range = |of: fn(f32, f32) -> f32| margins.iter().copied().reduce(of).expect("margins");
        let span = range(f32::max) - range(f32::min);
        let names: Vec<&str> = file.names().filter(|name| name.starts_with("beta_")).collect();
        assert!(!names.is_empty(), "{}: no betas", path.display());
        for name in names {
            let bins: usize = name["beta_".len()..].parse().expect("beta_<bins>");
            let expected = file.floats(name);
            let beta = |range| pending(QuantileBalancing { bins, range }, &observation);
            assert_close("beta", &beta(MarginRange::OnePass), expected, 2e-5);
            // The grid's bins may be almost twice as wide as those of the live range.
            let bound = 2.0 * span / bins as f32;
            assert_within("grid", &beta(MarginRange::Grid), expected, bound);
        }
    }
}

/// What SPEC section 2 says of the live range, word for word: `margins` [tokens, e].
fn by_the_letter(margins: &[f32], e: usize, k: usize, bins: usize) -> Vec<f32> {
    let (low, high) = margins
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), m| (low.min(*m), high.max(*m)));
    let width = (high.max(low + 1e-6) - low) / bins as f32;
    let target = (margins.len() / e) as f64 * k as f64 / e as f64;
    let beta = |expert: usize| {
        let mut counts = vec![0u64; bins];
        for margin in margins.iter().skip(expert).step_by(e) {
            counts[(((margin - low) / width).floor().max(0.0) as usize).min(bins - 1)] += 1;
        }
        let from_top = |bin: usize| counts[bin..].iter().sum::<u64>() as f64;
        let bin = (0..bins).rev().find(|bin| from_top(*bin) >= target).expect("all tokens");
        let beyond = ((from_top(bin) - target) / counts[bin].max(1) as f64) as f32;
        low + bin as f32 * width + width * beyond
    };
    (0..e).map(beta).collect()
}

#[test]
fn betas_have_the_bits_of_the_rule_and_padding_leaves_no_trace() {
    let (e, k) = (21, 3);
    for tokens in [1, 16, 150] {
        let margin = |i: usize| ((i * 7919 + i * i) % 1009) as f32 * 0.0137 - 5.0 + (i % e) as f32;
        let margins: Vec<f32> = (0..tokens * e).map(margin).collect();
        // Every other token is padding and is nowhere near.
        let padded: Vec<f32> =
            margins.chunks(e).flat_map(|row| [row.to_vec(), vec![f32::NAN; e]].concat()).collect();
        let valid: Vec<bool> = (0..2 * tokens).map(|t| t % 2 == 0).collect();
        let (whole, padded) = (routing_of(&margins, e, k), routing_of(&padded, e, k));
        let whole = Observation::new(&whole, &vec![true; tokens]);
        let padded = Observation::new(&padded, &valid);
        for bins in [10, 333] {
            let expected = by_the_letter(&margins, e, k, bins);
            let one_pass = QuantileBalancing { bins, range: MarginRange::OnePass };
            assert_same_bits("beta", &pending(one_pass, &whole), &expected);
            assert_same_bits("padded", &pending(one_pass, &padded), &expected);
            let grid = QuantileBalancing { bins, range: MarginRange::Grid };
            assert_same_bits("grid", &pending(grid, &padded), &pending(grid, &whole));
        }
    }
}

#[test]
fn no_tokens_have_betas_of_zero() {
    let (e, k) = (5, 2);
    let routing = routing_of(&[f32::NAN; 15], e, k);
    let observation = Observation::new(&routing, &[false; 3]);
    for range in [MarginRange::OnePass, MarginRange::Grid] {
        assert_eq!(pending(QuantileBalancing { bins: 10, range }, &observation), [0.0; 5]);
    }
}

#[test]
fn a_margin_that_is_not_finite_makes_every_beta_nan() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut routing = routing_of(&[0.5; 12], 4, 1);
        routing.logits = Tensor::slice_fill(routing.logits, [1..2, 2..3], value);
        let observation = Observation::new(&routing, &[true; 3]);
        let one_pass = QuantileBalancing { bins: 10, range: MarginRange::OnePass };
        assert!(pending(one_pass, &observation).iter().all(|beta| beta.is_nan()), "{value}");
    }
}
