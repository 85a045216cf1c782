//! Inputs for steps that are measured, not learned from.

use fulmar_data::Batch;
use fulmar_model::Preset;
use fulmar_model::config::{ModelConfig, RouterBalance, RouterDot};

/// A batch of `rows` rows of one document each, of tokens that look random and are the same in every
/// run; the last position of a row is not scored.
pub fn batch(model: &ModelConfig, rows: usize) -> Batch {
    let (s, v) = (model.max_seq_len, model.vocab_size as u64);
    let len = rows * s;
    let token = |i: usize| (i as u64 * 2_654_435_761 % v) as i32;
    Batch {
        num_rows: rows,
        seq_len: s,
        first_row: 0,
        tokens: (0..len).map(token).collect(),
        targets: (0..len).map(|i| token(i + 1)).collect(),
        loss_weight: (0..len).map(|i| if (i + 1) % s == 0 { 0.0 } else { 1.0 }).collect(),
        segment_ids: vec![0; len],
        token_valid: vec![true; len],
        cells: vec![0; rows],
        first_documents: vec![0; rows],
    }
}

/// The shape that stands for larger ones in benchmarks: 4 layers, 48 experts, width 192.
pub fn proxy() -> ModelConfig {
    ModelConfig {
        hidden_dim: 192,
        num_layers: 4,
        num_heads: 3,
        head_dim: 64,
        num_experts: 48,
        intermediate_dim: 96,
        latent_dim: 96,
        shared_intermediate_dim: 96,
        gated_norm_rank: 32,
        balance: RouterBalance::Quantile,
        quantile_bins: 1_000,
        router_dot: RouterDot::F32,
        ..Preset::MiniD96.config()
    }
}
