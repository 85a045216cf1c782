//! A golden model case as our configuration, weights and input.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_model::config::{ConvSite, RouterDot};
use fulmar_model::{ModelConfig, ModelInput, Transformer, weights};
use fulmar_tests::golden::GoldenFile;
use serde::Deserialize;

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
pub(crate) fn config(file: &GoldenFile) -> ModelConfig {
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
        quantile_bins: settings.qb_bins,
        initial_scale: 0.5,
        router_dot: RouterDot::F32,
    };
    config.validate().expect("a valid case");
    config
}

/// The model with the weights of `file`, whose names begin with `prefix`.
pub(crate) fn model(config: &ModelConfig, file: &GoldenFile, prefix: &str) -> Transformer {
    let device = Device::flex().autodiff();
    let model = Transformer::new(config, 0, &device).expect("valid");
    let source = |path: &str| {
        let name = format!("{prefix}{}", fulmar_tests::names::golden_name(path));
        let values = file.floats(&name).to_vec();
        Some(TensorData::new(values, file.shape(&name)))
    };
    weights::import(model, source).expect("every weight")
}

/// The rows of a case; one document a row where it names no segments.
pub(crate) fn input(file: &GoldenFile) -> ModelInput {
    let shape: [usize; 2] = file.shape("ids").try_into().expect("[b, s]");
    let len = shape[0] * shape[1];
    let segments = if file.names().any(|name| name == "segments") {
        file.integers("segments").to_vec()
    } else {
        vec![0; len]
    };
    ModelInput::new(
        file.integers("ids").to_vec(),
        segments,
        vec![true; len],
        shape,
        &Device::flex(),
    )
}

/// Next-token targets and weights of a case.
pub(crate) fn targets(file: &GoldenFile) -> (Tensor<1, Int>, Tensor<1>, f32) {
    let s = file.shape("ids")[1];
    let ids = file.integers("ids");
    let next = |i: usize| if (i + 1).is_multiple_of(s) { 0 } else { ids[i + 1] };
    let targets: Vec<i32> = (0..ids.len()).map(next).collect();
    let weight = file.floats("weight").to_vec();
    let (len, scored) = (weight.len(), weight.iter().sum());
    let device = Device::flex();
    let targets = Tensor::from_data(TensorData::new(targets, [len]), &device);
    (targets, Tensor::from_data(TensorData::new(weight, [len]), &device), scored)
}
