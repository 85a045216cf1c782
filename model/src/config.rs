//! The shape of a model, as data.

use serde::{Deserialize, Serialize};

use crate::compute::Compute;
use crate::error::ModelError;

/// Where a short convolution may stand in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConvSite {
    /// On the flat key projection.
    K,
    /// On the flat value projection; off in every preset.
    V,
    /// On the attention output.
    #[serde(rename = "attn")]
    Attention,
    /// On the MoE output.
    Mlp,
}

/// The arithmetic of the router's product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterDot {
    /// Operands, accumulation and logits in f32.
    #[default]
    F32,
    /// Operands and logits rounded to bf16, as the live hero run keeps it.
    Bf16,
}

/// What keeps experts in balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterBalance {
    /// A bias from the quantiles of margins (SPEC section 2).
    #[default]
    Quantile,
    /// Nothing: biases stay 0. For experiments.
    None,
}

impl RouterBalance {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Every size and constant of the architecture (SPEC sections 1 and 2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_dim: usize,
    /// Blocks.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads of layers with a window.
    pub local_kv_heads: usize,
    /// Key and value heads of layers that see the whole row.
    pub global_kv_heads: usize,
    /// Width of a head; a multiple of 4, since half of it is rotated in pairs.
    pub head_dim: usize,
    /// Routed experts of a layer.
    pub num_experts: usize,
    /// Experts a token is sent to, below `num_experts`.
    pub num_experts_per_token: usize,
    /// Inner width of a routed expert.
    pub intermediate_dim: usize,
    /// Width of the rows that travel to experts.
    pub latent_dim: usize,
    /// Inner width of a shared expert.
    pub shared_intermediate_dim: usize,
    /// Experts that every token passes through.
    pub num_shared_experts: usize,
    /// Tokens in a row.
    pub max_seq_len: usize,
    /// Keys a query of a local layer sees, itself included.
    pub sliding_window: usize,
    /// Every so many layers one is global; the last layer always is.
    pub global_every: usize,
    /// Sites of the short convolution.
    pub short_conv_sites: Vec<ConvSite>,
    /// Taps of the short convolution.
    pub short_conv_taps: usize,
    /// Inner width of the gate of a gated norm.
    pub gated_norm_rank: usize,
    /// Multiplies queries after norm and rotation.
    pub qk_mult: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f64,
    /// What the combine weights of a token sum to.
    pub routing_sum: f64,
    /// Weight of mean(logsumexp^2) in the loss.
    pub z_loss: f64,
    /// Weight in the loss of the sequence balance loss, summed over layers and averaged over the
    /// rows of the global batch (see [`fulmar_kernels::sequence_balance`]: 1 for each layer when
    /// balanced). 0, as in the recipe, to leave it out.
    #[serde(default)]
    pub sequence_balance_loss: f64,
    /// What keeps experts in balance: `quantile` or `none`.
    #[serde(default, skip_serializing_if = "RouterBalance::is_default")]
    pub balance: RouterBalance,
    /// Bins of the margin histogram that balances experts.
    pub quantile_bins: usize,
    /// Initial weights have std `initial_scale / sqrt(hidden_dim)` before the cut at 3 sigma.
    pub initial_scale: f64,
    /// Arithmetic of the router's product.
    #[serde(default)]
    pub router_dot: RouterDot,
    /// Arithmetic of the dense products.
    #[serde(default)]
    pub compute: Compute,
}

impl ModelConfig {
    /// Key and value heads stored in every layer: the larger of the local and the global count.
    pub fn stored_kv_heads(&self) -> usize {
        self.local_kv_heads.max(self.global_kv_heads)
    }

    /// Whether layer `layer` (from 0) sees the whole row: the last of every `global_every`, and
    /// the last of all.
    pub fn is_global(&self, layer: usize) -> bool {
        layer % self.global_every == self.global_every - 1 || layer + 1 == self.num_layers
    }

    /// Key and value heads that layer `layer` reads.
    pub fn own_kv_heads(&self, layer: usize) -> usize {
        if self.is_global(layer) { self.global_kv_heads } else { self.local_kv_heads }
    }

    /// Whether a short convolution stands at `site`.
    pub fn has_conv(&self, site: ConvSite) -> bool {
        self.short_conv_sites.contains(&site)
    }

    /// Standard deviation of the initial weights before the cut at 3 sigma.
    pub fn initial_std(&self) -> f64 {
        self.initial_scale / (self.hidden_dim as f64).sqrt()
    }

    /// Checks every rule of the architecture.
    ///
    /// # Errors
    /// [`ModelError::Config`] with the first field that breaks a rule, its value and the rule.
    pub fn validate(&self) -> Result<(), ModelError> {
        self.sizes_are_positive()?;
        self.heads_agree()?;
        self.experts_agree()?;
        self.constants_are_sane()
    }

    fn sizes_are_positive(&self) -> Result<(), ModelError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_dim", self.hidden_dim),
            ("num_layers", self.num_layers),
            ("num_heads", self.num_heads),
            ("local_kv_heads", self.local_kv_heads),
            ("global_kv_heads", self.global_kv_heads),
            ("head_dim", self.head_dim),
            ("num_experts", self.num_experts),
            ("num_experts_per_token", self.num_experts_per_token),
            ("intermediate_dim", self.intermediate_dim),
            ("latent_dim", self.latent_dim),
            ("max_seq_len", self.max_seq_len),
            ("sliding_window", self.sliding_window),
            ("global_every", self.global_every),
            ("short_conv_taps", self.short_conv_taps),
            ("gated_norm_rank", self.gated_norm_rank),
            ("quantile_bins", self.quantile_bins),
        ];
        match sizes.into_iter().find(|(_, size)| *size == 0) {
            Some((field, size)) => Err(rule(field, size, "at least 1")),
            None if self.num_shared_experts > 0 && self.shared_intermediate_dim == 0 => {
                Err(rule("shared_intermediate_dim", 0, "at least 1 with shared experts"))
            }
            None => Ok(()),
        }
    }

    fn heads_agree(&self) -> Result<(), ModelError> {
        let stored = self.stored_kv_heads();
        if !self.head_dim.is_multiple_of(4) {
            return Err(rule(
                "head_dim",
                self.head_dim,
                "a multiple of 4: half of it turns in pairs",
            ));
        }
        if !self.num_heads.is_multiple_of(stored) {
            let needed = format!("a multiple of the {stored} stored key-value heads");
            return Err(rule("num_heads", self.num_heads, needed));
        }
        Ok(())
    }

    fn experts_agree(&self) -> Result<(), ModelError> {
        if self.num_experts_per_token >= self.num_experts {
            let needed = format!(
                "below `num_experts` = {}: the balancing margin is taken against the next expert",
                self.num_experts
            );
            return Err(rule("num_experts_per_token", self.num_experts_per_token, needed));
        }
        for (i, site) in self.short_conv_sites.iter().enumerate() {
            if self.short_conv_sites[..i].contains(site) {
                return Err(rule("short_conv_sites", format!("{site:?} twice"), "each site once"));
            }
        }
        Ok(())
    }

    fn constants_are_sane(&self) -> Result<(), ModelError> {
        let positive = [
            ("qk_mult", self.qk_mult),
            ("rope_theta", self.rope_theta),
            ("norm_eps", self.norm_eps),
            ("routing_sum", self.routing_sum),
            ("initial_scale", self.initial_scale),
        ];
        for (field, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(rule(field, value, "a finite number above 0"));
            }
        }
        let weights =
            [("z_loss", self.z_loss), ("sequence_balance_loss", self.sequence_balance_loss)];
        for (field, value) in weights {
            if !(value.is_finite() && value >= 0.0) {
                return Err(rule(field, value, "a finite number, 0 or more"));
            }
        }
        Ok(())
    }
}

fn rule(field: &'static str, found: impl ToString, rule: impl Into<String>) -> ModelError {
    ModelError::Config { field, found: found.to_string(), rule: rule.into() }
}
