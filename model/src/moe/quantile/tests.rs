use burn::tensor::{Device, TensorData};

use super::*;
use crate::moe::grid::GridBins;
use crate::moe::router::Routing;

/// A layer with these margins [e, tokens], all of valid tokens.
fn margins_of(values: &[f32], num_experts: usize) -> LayerMargins {
    let device = Device::flex();
    let tokens = values.len() / num_experts;
    let by_expert = TensorData::new(values.to_vec(), [num_experts, tokens]);
    let routing = Routing {
        logits: Tensor::<2>::from_data(by_expert, &device).swap_dims(0, 1),
        selected: Tensor::zeros([tokens, 1], &device),
        combine_weights: Tensor::ones([tokens, 1], &device),
        alpha: Tensor::zeros([tokens], &device),
    };
    Observation::new(&routing, &vec![true; tokens]).margins()
}

/// What a grid holds on the host.
fn read(grid: &MarginGrid) -> (GridBins, Vec<i32>) {
    let counts = grid.in_bins(grid.bins).expect("margins");
    (grid.bins, counts.into_data().iter::<i32>().collect())
}

/// 64 tokens whose margins for expert `e` are a shifted permutation of 0..64.
fn ramp(num_experts: usize) -> Vec<f32> {
    (0..num_experts)
        .flat_map(|e| (0..64).map(move |t| ((t * 37 + e * 11) % 64) as f32 + e as f32 * 100.0))
        .collect()
}

#[test]
fn exactly_the_fair_share_of_tokens_exceeds_beta() {
    let (num_experts, k) = (8, 2);
    for beta_of in [
        |margins: LayerMargins| one_pass(&margins, 2, 10_000),
        |margins: LayerMargins| MarginGrid::count(margins, 10_000).quantiles(2),
    ] {
        let margins = ramp(num_experts);
        for (e, beta) in beta_of(margins_of(&margins, num_experts)).into_iter().enumerate() {
            let above = margins[e * 64..][..64].iter().filter(|&&m| m > beta).count();
            // Integers one apart, bins far narrower: 64 k / e = 16 lie at or above.
            assert!(above.abs_diff(64 * k / num_experts) <= 1, "expert {e}: {above} above {beta}");
        }
    }
}

#[test]
fn grid_counts_depend_on_neither_order_nor_micro_batch() {
    let tokens = |range: std::ops::Range<usize>, scale: f32| -> Vec<f32> {
        (0..3)
            .flat_map(|e| range.clone().map(move |t| (t as f32 - 40.0) * scale * (e + 1) as f32))
            .collect()
    };
    let parts = [tokens(0..5, 1e-3), tokens(5..60, 0.7), tokens(60..64, 1e4)];
    let grids = || parts.iter().map(|part| MarginGrid::count(margins_of(part, 3), 100));
    let forward = grids().reduce(|a, b| a.merge(b, 100)).expect("three parts");
    let backward = grids().rev().reduce(|a, b| a.merge(b, 100)).expect("three parts");
    assert_eq!(read(&forward), read(&backward));
    assert_eq!(forward.tokens(), 64);

    let interleave =
        |e: usize| parts.iter().flat_map(move |p| p[e * p.len() / 3..][..p.len() / 3].to_vec());
    let whole: Vec<f32> = (0..3).flat_map(interleave).collect();
    assert_eq!(read(&forward), read(&MarginGrid::count(margins_of(&whole, 3), 100)));
}

#[test]
fn equal_margins_give_equal_betas_and_no_bias() {
    let balancing = QuantileBalancing { bins: 1_000, range: MarginRange::OnePass };
    let beta = one_pass(&margins_of(&[0.25; 30], 3), 1, 1_000);
    assert!(beta.iter().all(|b| (b - 0.25).abs() <= 1e-6), "{beta:?}");
    assert_eq!(balancing.bias(&beta), [0.0; 3]);
}
