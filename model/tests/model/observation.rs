use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_model::moe::RoutingStats;
use fulmar_model::moe::observation::Observation;

use crate::routing::routing_of;

/// Tokens whose sums are formed before they are added to the others'.
const BLOCK: usize = 256;

/// The sums as they are defined, block by block in order.
fn sums(logits: &[f32], selected: &[i32], valid: &[bool], e: usize, k: usize) -> RoutingStats {
    let empty = || RoutingStats {
        tokens: 0,
        expert_counts: vec![0; e],
        probability_sums: vec![0.0; e],
        z_sum: 0.0,
    };
    let mut total = empty();
    for start in (0..valid.len()).step_by(BLOCK) {
        let mut block = empty();
        for token in (start..valid.len().min(start + BLOCK)).filter(|token| valid[*token]) {
            let logits = &logits[token * e..][..e];
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = logits.iter().map(|logit| (logit - max).exp()).collect();
            let sum: f32 = shares.iter().sum();
            for (total, share) in block.probability_sums.iter_mut().zip(&shares) {
                *total += f64::from(share / sum);
            }
            let log_sum_exp = f64::from(max + sum.ln());
            block.z_sum += log_sum_exp * log_sum_exp;
            block.tokens += 1;
            for expert in &selected[token * k..][..k] {
                block.expert_counts[*expert as usize] += 1;
            }
        }
        total.add(&block);
    }
    total
}

#[test]
fn statistics_have_the_bits_of_sums_in_order() {
    let (e, k) = (37, 3);
    for t in [0, 1, 256, 700] {
        let logits: Vec<f32> = (0..t * e).map(|i| (i as f32 * 1.7).sin() * 6.0).collect();
        let selected: Vec<i32> = (0..t * k).map(|i| ((i * 5) % e) as i32).collect();
        let valid: Vec<bool> = (0..t).map(|t| t % 5 != 3).collect();
        let mut routing = routing_of(&logits, e, k);
        let ids = TensorData::new(selected.clone(), [t, k]);
        routing.selected = Tensor::<2, Int>::from_data(ids, &Device::flex());
        let found = Observation::new(&routing, &valid).stats;
        assert_eq!(found, sums(&logits, &selected, &valid, e, k), "{t} tokens");
    }
}
