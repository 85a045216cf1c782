//! The published ladder and its miniature, every number with its source.

use serde::{Deserialize, Serialize};

use crate::compute::Compute;
use crate::config::{ConvSite, ModelConfig, RouterBalance, RouterDot};

/// Tokens that a rung of the published ladder trains on for each active parameter (SPEC section 1).
pub const TOKENS_PER_ACTIVE_PARAM: f64 = 791.0;

/// The same of the mini ladder: its four rungs then take about an hour on two cores, and its largest
/// reads the shipped corpus once.
pub const MINI_TOKENS_PER_ACTIVE_PARAM: f64 = 1.2;

/// A rung of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The first rung of the mini ladder, 0.2M active.
    MiniD48,
    /// 0.5M active.
    MiniD64,
    /// d768 at an eighth of its width, for a laptop; 1.2M active.
    MiniD96,
    /// d1024 at an eighth of its width, the last rung of the mini ladder; 3.0M active.
    MiniD128,
    /// 1.6B parameters, 61M active.
    D768,
    /// 4.0B parameters, 162M active.
    D1024,
    /// 11.5B parameters, 481M active.
    D1536,
    /// 27.7B parameters, 1.2B active.
    D2048,
    /// The hero run: 535B parameters, 22.8B active.
    D6144,
}

impl Preset {
    /// Every preset, smallest first.
    pub const ALL: [Self; 9] = [
        Self::MiniD48,
        Self::MiniD64,
        Self::MiniD96,
        Self::MiniD128,
        Self::D768,
        Self::D1024,
        Self::D1536,
        Self::D2048,
        Self::D6144,
    ];

    /// The name used in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::MiniD48 => "mini_d48",
            Self::MiniD64 => "mini_d64",
            Self::MiniD96 => "mini_d96",
            Self::MiniD128 => "mini_d128",
            Self::D768 => "d768",
            Self::D1024 => "d1024",
            Self::D1536 => "d1536",
            Self::D2048 => "d2048",
            Self::D6144 => "d6144",
        }
    }

    /// The preset of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// The shape. Source of every row: SPEC section 1 (run record, issue 8435).
    pub fn config(self) -> ModelConfig {
        match self {
            // Layers, hidden width, query heads, local and global key-value heads.
            Self::MiniD48 => mini(4, 48, 3, 1, 1),
            Self::MiniD64 => mini(6, 64, 4, 1, 1),
            Self::MiniD96 => mini(8, 96, 6, 1, 1),
            Self::MiniD128 => mini(12, 128, 8, 2, 1),
            Self::D768 => rung(8, 768, 6, 1, 1),
            Self::D1024 => rung(12, 1024, 8, 2, 1),
            Self::D1536 => rung(16, 1536, 12, 3, 1),
            Self::D2048 => rung(22, 2048, 16, 4, 2),
            Self::D6144 => rung(48, 6144, 48, 12, 6),
        }
    }

    /// Rows in a step: 1,024 a rack (SPEC section 1); in the mini ladder as many as keep the steps of
    /// its rungs within a factor of four.
    pub fn batch_rows(self) -> u64 {
        match self {
            Self::MiniD48 => 4,
            Self::MiniD64 | Self::MiniD96 => 8,
            Self::MiniD128 => 16,
            Self::D768 => 1_024,
            Self::D1024 => 2_048,
            Self::D1536 => 6_144,
            Self::D2048 | Self::D6144 => 11_264,
        }
    }

    /// Tokens that the whole run has for each active parameter, the same on every rung of a ladder.
    pub fn tokens_per_active_param(self) -> f64 {
        match self {
            Self::MiniD48 | Self::MiniD64 | Self::MiniD96 | Self::MiniD128 => {
                MINI_TOKENS_PER_ACTIVE_PARAM
            }
            _ => TOKENS_PER_ACTIVE_PARAM,
        }
    }

    /// Steps of the whole run, by [`rung_steps`].
    pub fn steps(self) -> u64 {
        rung_steps(&self.config(), self.batch_rows(), self.tokens_per_active_param())
    }
}

/// Steps of a rung that trains on `ratio` tokens for each active parameter, to the nearest step.
pub fn rung_steps(config: &ModelConfig, batch_rows: u64, ratio: f64) -> u64 {
    let tokens_per_step = batch_rows * config.max_seq_len as u64;
    let tokens = ratio * config.num_active_params() as f64;
    (tokens / tokens_per_step as f64).round() as u64
}

/// What all rungs share (SPEC sections 1 and 2) with what sets one apart.
fn rung(
    num_layers: usize,
    hidden_dim: usize,
    num_heads: usize,
    local_kv_heads: usize,
    global_kv_heads: usize,
) -> ModelConfig {
    ModelConfig {
        vocab_size: 128_256,
        hidden_dim,
        num_layers,
        num_heads,
        local_kv_heads,
        global_kv_heads,
        head_dim: 128,
        num_experts: 384,
        num_experts_per_token: 8,
        intermediate_dim: hidden_dim / 2,
        latent_dim: hidden_dim / 2,
        shared_intermediate_dim: hidden_dim / 2,
        num_shared_experts: 2,
        max_seq_len: 4_096,
        sliding_window: 2_048,
        global_every: 4,
        short_conv_sites: vec![ConvSite::K, ConvSite::Attention, ConvSite::Mlp],
        short_conv_taps: 4,
        gated_norm_rank: 128,
        qk_mult: 1.3,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        routing_sum: 2.5,
        z_loss: 1e-4,
        sequence_balance_loss: 0.0,
        balance: RouterBalance::Quantile,
        quantile_bins: 10_000,
        initial_scale: 0.5,
        router_dot: RouterDot::F32,
        compute: Compute::F32,
    }
}

/// A rung at an eighth of its width, of its head dimension and of its norms' rank: 48 to 128 for 384 to
/// 1,024. Experts and choices are the published ones; vocabulary and row are cut to what two cores train
/// in minutes.
fn mini(
    num_layers: usize,
    hidden_dim: usize,
    num_heads: usize,
    local_kv_heads: usize,
    global_kv_heads: usize,
) -> ModelConfig {
    ModelConfig {
        vocab_size: 4_096,
        head_dim: 16,
        max_seq_len: 256,
        sliding_window: 128,
        gated_norm_rank: 16,
        ..rung(num_layers, hidden_dim, num_heads, local_kv_heads, global_kv_heads)
    }
}
