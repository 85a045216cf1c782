//! Golden model settings as our configuration.

use fulmar_model::config::{ConvSite, RouterBalance, RouterDot};
use fulmar_model::{Compute, ModelConfig};
use serde::Deserialize;

use crate::golden::GoldenFile;

/// The settings in a case's metadata, by the names they have there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    vocab_size: usize,
    hidden_dim: usize,
    num_layers: usize,
    num_heads: usize,
    local_kv_heads: usize,
    global_kv_heads: usize,
    head_dim: usize,
    num_experts: usize,
    experts_per_token: usize,
    expert_dim: usize,
    latent_dim: usize,
    shared_dim: usize,
    num_shared_experts: usize,
    seq_len: usize,
    sliding_window: usize,
    global_every: usize,
    sconv_kernel: usize,
    gated_norm_rank: usize,
    qk_mult: f64,
    rope_theta: f64,
    norm_eps: f64,
    qb_bins: usize,
    routing_sum: f64,
    z_loss: f64,
    #[allow(dead_code, reason = "the shape of `ids` says it too")]
    batch: usize,
    sconv_sites: Vec<ConvSite>,
}

/// Our configuration for a case.
///
/// # Panics
/// If the metadata has a setting that we do not know, or one that breaks a rule.
pub fn config_of(file: &GoldenFile) -> ModelConfig {
    let settings: Settings =
        serde_json::from_str(&file.setting::<String>("config")).expect("settings we know");
    let config = ModelConfig {
        vocab_size: settings.vocab_size,
        hidden_dim: settings.hidden_dim,
        num_layers: settings.num_layers,
        num_heads: settings.num_heads,
        local_kv_heads: settings.local_kv_heads,
        global_kv_heads: settings.global_kv_heads,
        head_dim: settings.head_dim,
        num_experts: settings.num_experts,
        num_experts_per_token: settings.experts_per_token,
        intermediate_dim: settings.expert_dim,
        latent_dim: settings.latent_dim,
        shared_intermediate_dim: settings.shared_dim,
        num_shared_experts: settings.num_shared_experts,
        max_seq_len: settings.seq_len,
        sliding_window: settings.sliding_window,
        global_every: settings.global_every,
        short_conv_sites: settings.sconv_sites,
        short_conv_taps: settings.sconv_kernel,
        gated_norm_rank: settings.gated_norm_rank,
        qk_mult: settings.qk_mult,
        rope_theta: settings.rope_theta,
        norm_eps: settings.norm_eps,
        routing_sum: settings.routing_sum,
        z_loss: settings.z_loss,
        sequence_balance_loss: 0.0,
        balance: RouterBalance::Quantile,
        quantile_bins: settings.qb_bins,
        initial_scale: 0.5,
        router_dot: RouterDot::F32,
        compute: Compute::F32,
    };
    config.validate().expect("a valid case");
    config
}
