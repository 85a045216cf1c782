//! Floating-point operations of a token, part by part.

use serde::Serialize;

use crate::config::ModelConfig;

/// Training costs this many forward passes: one forward, two backward.
pub const TRAINING_FACTOR: u64 = 3;

/// Forward FLOPs of one token by part, by the rule of the published ladder (SPEC section 7).
///
/// The rule counts `num_layers / global_every` layers as global, one fewer than d2048 has, and
/// takes the whole window or row as the span of every query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ForwardFlops {
    /// The chosen routed experts.
    pub routed_experts: u64,
    /// The shared experts.
    pub shared_experts: u64,
    /// The router's product.
    pub router: u64,
    /// Down to latent width and back.
    pub latent: u64,
    /// Query, key and value projections.
    pub qkv: u64,
    /// The attention output projection.
    pub attention_output: u64,
    /// Scores, softmax and values.
    pub attention_scores: u64,
    /// The output head.
    pub head: u64,
}

impl ForwardFlops {
    /// The parts with their names, in the order of the struct.
    pub fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("routed experts", self.routed_experts),
            ("shared experts", self.shared_experts),
            ("router", self.router),
            ("latent projections", self.latent),
            ("q, k, v projections", self.qkv),
            ("attention output", self.attention_output),
            ("attention scores", self.attention_scores),
            ("output head", self.head),
        ]
    }

    /// Sum of all parts.
    pub fn total(&self) -> u64 {
        self.parts().iter().map(|(_, flops)| flops).sum()
    }

    /// Sum of all parts but the output head, the quantity of the scaling ladder.
    pub fn without_head(&self) -> u64 {
        self.total() - self.head
    }
}

impl ModelConfig {
    /// Forward FLOPs of one token, part by part.
    pub fn forward_flops(&self) -> ForwardFlops {
        let [d, c, f] = [self.hidden_dim, self.latent_dim, self.intermediate_dim].map(|n| n as u64);
        let [e, k] = [self.num_experts, self.num_experts_per_token].map(|n| n as u64);
        let [heads, head] = [self.num_heads, self.head_dim].map(|n| n as u64);
        let layers = self.num_layers as u64;
        let shared = self.num_shared_experts as u64 * self.shared_intermediate_dim as u64;
        let global = (self.num_layers / self.global_every) as u64;
        let local = layers - global;
        let kv_heads = local * self.local_kv_heads as u64 + global * self.global_kv_heads as u64;
        let span = local * self.sliding_window.min(self.max_seq_len) as u64
            + global * self.max_seq_len as u64;
        ForwardFlops {
            routed_experts: layers * 2 * 3 * c * f * k,
            shared_experts: layers * 2 * 3 * d * shared,
            router: layers * 2 * d * e,
            latent: layers * 2 * 2 * d * c,
            qkv: 2 * d * (layers * heads * head + 2 * kv_heads * head),
            attention_output: layers * 2 * d * heads * head,
            attention_scores: (4 * heads * head + 3 * heads) * span,
            head: 2 * d * self.vocab_size as u64,
        }
    }

    /// Training FLOPs of a step of `tokens` tokens with the output head.
    pub fn step_flops(&self, tokens: u64) -> f64 {
        step_flops(self.forward_flops().total(), tokens)
    }

    /// Training FLOPs of a step of `tokens` tokens without the output head.
    pub fn step_flops_without_head(&self, tokens: u64) -> f64 {
        step_flops(self.forward_flops().without_head(), tokens)
    }
}

/// The product is taken in integers: the hero's step is past 2^53, so only the last rounding may
/// be a float's.
fn step_flops(forward_per_token: u64, tokens: u64) -> f64 {
    (u128::from(TRAINING_FACTOR) * u128::from(forward_per_token) * u128::from(tokens)) as f64
}
