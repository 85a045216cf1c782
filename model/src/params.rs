//! How many parameters a model has, and how many of them a token uses.

use std::collections::BTreeMap;

use crate::config::{ConvSite, ModelConfig};
use crate::role::Role;

impl ModelConfig {
    /// Every parameter, router biases included (SPEC section 1).
    pub fn num_params(&self) -> u64 {
        let (d, v) = (self.hidden_dim as u64, self.vocab_size as u64);
        let per_layer = self.attention_params() + self.moe_params() + 2 * self.norm_params();
        // Embedding and head, each with its norm beside it.
        2 * (v * d + self.norm_params()) + self.num_layers as u64 * per_layer
    }

    /// Parameters that take part in one token's forward pass, by the record's rule: projections,
    /// router, chosen experts, latent projections and shared experts, and nothing else
    /// (SPEC section 1).
    pub fn num_active_params(&self) -> u64 {
        let [d, c, f] = [self.hidden_dim, self.latent_dim, self.intermediate_dim].map(|n| n as u64);
        let [e, k] = [self.num_experts, self.num_experts_per_token].map(|n| n as u64);
        let head = self.head_dim as u64;
        let (q, kv) = (self.num_heads as u64 * head, self.stored_kv_heads() as u64 * head);
        let shared = self.num_shared_experts as u64 * 3 * d * self.shared_intermediate_dim as u64;
        let per_layer = 2 * d * q + 2 * d * kv + d * e + k * 3 * c * f + 2 * d * c + shared;
        self.num_layers as u64 * per_layer
    }

    /// How many parameters play each role, of all layers and experts.
    pub fn params_by_role(&self) -> BTreeMap<Role, u64> {
        let [d, c, f] = [self.hidden_dim, self.latent_dim, self.intermediate_dim].map(|n| n as u64);
        let [e, v, layers] = [self.num_experts, self.vocab_size, self.num_layers].map(|n| n as u64);
        let mut by_role = BTreeMap::from([
            (Role::Embedding, v * d),
            (Role::Head, v * d),
            (Role::ExpertStack, layers * e * 3 * c * f),
            (Role::Router, layers * d * e),
            (Role::RouterBias, layers * e),
            (Role::HeadGate, layers * d * self.num_heads as u64),
            // Two norms of a layer and the two beside embedding and head; one of latent width.
            (Role::Gain, (2 * layers + 2) * d + layers * c),
            (Role::Convolution, layers * self.conv_params()),
        ]);
        let others: u64 = by_role.values().sum();
        by_role.insert(Role::Matrix, self.num_params() - others);
        by_role
    }

    fn norm_params(&self) -> u64 {
        let (d, rank) = (self.hidden_dim as u64, self.gated_norm_rank as u64);
        d + 2 * d * rank
    }

    fn attention_params(&self) -> u64 {
        let (d, head) = (self.hidden_dim as u64, self.head_dim as u64);
        let (q, kv) = (self.num_heads as u64 * head, self.stored_kv_heads() as u64 * head);
        let gate = d * self.num_heads as u64;
        2 * d * q + 2 * d * kv + gate + self.conv_params()
    }

    /// Of a layer, the one on the MoE output included.
    fn conv_params(&self) -> u64 {
        let d = self.hidden_dim as u64;
        let kv = (self.stored_kv_heads() * self.head_dim) as u64;
        let conv_channels: u64 =
            [(ConvSite::K, kv), (ConvSite::V, kv), (ConvSite::Attention, d), (ConvSite::Mlp, d)]
                .into_iter()
                .filter_map(|(site, channels)| self.has_conv(site).then_some(channels))
                .sum();
        self.short_conv_taps as u64 * conv_channels
    }

    fn moe_params(&self) -> u64 {
        let [d, c, f] = [self.hidden_dim, self.latent_dim, self.intermediate_dim].map(|n| n as u64);
        let e = self.num_experts as u64;
        let router = d * e + e;
        let latent = 2 * d * c + c;
        let shared = self.num_shared_experts as u64 * 3 * d * self.shared_intermediate_dim as u64;
        router + latent + e * 3 * c * f + shared
    }
}
