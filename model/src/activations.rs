//! What the backward pass of a block reads and needs, in words of 4 bytes.
//!
//! The counts follow the operations of `fulmar-kernels` on the CPU: what each keeps for its
//! backward, tensors that several keep counted once. `train/benches/memory.rs` measures them.

use fulmar_ep::WaySize;

use crate::config::{ConvSite, ModelConfig, RouterDot};

/// Words of one block on one rank, for the tokens of one forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWords {
    /// Its input, which every mode keeps.
    pub input: u64,
    /// The routing decision, which every mode keeps.
    pub decision: u64,
    /// What exchanges delivered.
    pub delivered: u64,
    /// Everything else that backward reads; a block that is computed again has it for a while.
    pub inner: u64,
    /// What backward holds at most beside these and the gradients of parameters.
    pub temporary: u64,
}

impl ModelConfig {
    /// The words of a block for `tokens` tokens whose rows travel as `way` says.
    pub fn block_words(&self, tokens: u64, way: &WaySize) -> BlockWords {
        let [d, c, f] = [self.hidden_dim, self.latent_dim, self.intermediate_dim].map(|n| n as u64);
        let k = self.num_experts_per_token as u64;
        BlockWords {
            input: tokens * d,
            // Ids and the segments of tokens.
            decision: tokens * (k + 1) + way.decision_words,
            delivered: way.delivered_words,
            inner: tokens * (2 * self.norm_words() + self.attention_words() + self.moe_words())
                + way.expert_rows * (c + 2 * f)
                + way.returned_rows * c
                + way.weights,
            // The backward of the experts: gradients of their outputs, and of one wave's inputs
            // and activations; the residual stream and the experts' input wait with theirs.
            temporary: way.expert_rows * c + way.wave_rows * (c + 3 * f) + 2 * tokens * d,
        }
    }

    /// What a norm's backward reads of a token beside its input: the normalised value, both sides
    /// of the gate's activation, the gate, and its output, which the next operation reads.
    pub fn norm_words(&self) -> u64 {
        3 * self.hidden_dim as u64 + 2 * self.gated_norm_rank as u64
    }

    fn conv_words(&self, site: ConvSite, channels: u64) -> u64 {
        if self.has_conv(site) { channels } else { 0 }
    }

    fn attention_words(&self) -> u64 {
        let (d, heads) = (self.hidden_dim as u64, self.num_heads as u64);
        let h = heads * self.head_dim as u64;
        let kv = (self.stored_kv_heads() * self.head_dim) as u64;
        let convolved = self.conv_words(ConvSite::K, kv)
            + self.conv_words(ConvSite::V, kv)
            + self.conv_words(ConvSite::Attention, d);
        // Queries, sums of values, attended and gated heads; keys and values; the softmax's sums
        // and the gates; the stream after attention.
        4 * h + 2 * kv + 2 * heads + convolved + d
    }

    fn moe_words(&self) -> u64 {
        let (d, c) = (self.hidden_dim as u64, self.latent_dim as u64);
        let shared = self.num_shared_experts as u64 * 3 * self.shared_intermediate_dim as u64;
        let rounded = match self.router_dot {
            RouterDot::F32 => 0,
            RouterDot::Bf16 => d / 2,
        };
        // Scores; the latent row before its norm, and the sum that comes back.
        self.num_experts as u64 + rounded + 2 * c + shared + self.conv_words(ConvSite::Mlp, d)
    }
}
