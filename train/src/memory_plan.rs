//! How much memory a micro-step takes, by owner, before it is taken.
//!
//! Counted is what lies in tensors of one rank while a micro-batch goes forward and back; neither
//! the update of the parameters nor the process itself. `cargo bench --bench memory` measures it.

use std::fmt;

use fulmar_model::activations::BlockWords;
use fulmar_model::{ModelConfig, Recompute, Role};
use serde::Serialize;

use crate::checkpoint;
use crate::config::RunConfig;
use crate::optim::{OptimizerConfig, Rule};

/// Bytes of a float, and of an index.
const WORD: u64 = 4;

/// Bytes of a count of the balancing histogram.
const COUNT: u64 = 4;

/// Logits that the loss holds at once, unless [`LEAST_LOGIT_ROWS`] have more.
const LOGITS: u64 = 1 << 22;

/// Rows of logits that the loss holds at once at least.
const LEAST_LOGIT_ROWS: u64 = 96;

/// Bytes of one rank by owner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Parameters.
    pub weights: u64,
    /// One gradient of each trained parameter.
    pub gradients: u64,
    /// Momenta and moments.
    pub optimizer_state: u64,
    /// What balances experts, kept until the end of the step.
    pub statistics: u64,
    /// Logits, and the gradients that the loss forms with them: of its input and of the head.
    pub loss: u64,
    /// The buffers of one exchange, sent and arrived.
    pub exchange: u64,
    /// What a save holds at most beside the state: some pieces of a tensor, or, in the background,
    /// one more copy of the state, made as updates change it.
    pub saving: u64,
    /// What depends on the activations that are kept, one entry a mode.
    pub modes: Vec<ModeMemory>,
}

/// Bytes of one rank where a mode decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModeMemory {
    /// Which activations are kept.
    pub recompute: Recompute,
    /// Those that are kept, at the end of the forward pass.
    pub activations: u64,
    /// What the backward pass of the largest block holds beside them: what it computes again, its
    /// temporaries, and gradients of its parameters that have not joined their sums.
    pub block: u64,
    /// The most of all owners together that is held at a time.
    pub peak: u64,
}

impl MemoryPlan {
    /// The plan of a recipe, for any one of its ranks.
    pub fn new(config: &RunConfig) -> Self {
        let sizes = Sizes::new(config);
        Self {
            weights: WORD * sizes.all.held,
            gradients: WORD * sizes.all.trained,
            optimizer_state: sizes.all.state_bytes,
            statistics: sizes.statistics,
            loss: WORD * sizes.loss,
            exchange: WORD * sizes.exchange,
            saving: saving(config, WORD * sizes.all.held + sizes.all.state_bytes),
            modes: Recompute::ALL.map(|recompute| sizes.mode(recompute)).to_vec(),
        }
    }

    /// The line of `recompute`.
    pub fn mode(&self, recompute: Recompute) -> &ModeMemory {
        self.modes.iter().find(|mode| mode.recompute == recompute).expect("a line for each mode")
    }
}

/// Bytes that a save takes of a rank whose state has `state` bytes.
fn saving(config: &RunConfig, state: u64) -> u64 {
    let pieces = state.min(checkpoint::SAVE_PIECES_BYTES);
    match (config.checkpoint.enabled, config.checkpoint.background) {
        (false, _) => 0,
        (true, false) => pieces,
        (true, true) => state + pieces,
    }
}

/// Parameters that a rank has.
#[derive(Debug, Clone, Copy, Default)]
struct Parameters {
    held: u64,
    trained: u64,
    /// Bytes of the optimizer.
    state_bytes: u64,
}

impl Parameters {
    /// Of the whole model with its experts over `shards`.
    fn new(model: &ModelConfig, optimizer: &OptimizerConfig, shards: u64) -> Self {
        let mut sum = Self::default();
        for (role, count) in model.params_by_role() {
            let count = if role == Role::ExpertStack { count / shards } else { count };
            let rule = Rule::of(role);
            sum.held += count;
            sum.trained += if rule == Rule::Fixed { 0 } else { count };
            sum.state_bytes += optimizer.state_bytes(rule) * count;
        }
        sum
    }
}

/// What a micro-step's bytes follow from; in words but for `statistics`.
struct Sizes {
    all: Parameters,
    /// Trained parameters of the embedding and of the head.
    vocabulary: u64,
    /// Trained parameters of a block.
    block_parameters: u64,
    /// Those of its experts on this rank.
    expert_parameters: u64,
    layers: u64,
    block: BlockWords,
    /// What is kept around the blocks in every mode.
    ends: u64,
    statistics: u64,
    loss: u64,
    exchange: u64,
    waves: u64,
    /// Whether gradients of earlier micro-batches are there.
    accumulates: bool,
}

impl Sizes {
    fn new(config: &RunConfig) -> Self {
        let model = &config.model;
        let shards = config.parallel.shards as u64;
        let [d, v, e, layers] =
            [model.hidden_dim, model.vocab_size, model.num_experts, model.num_layers]
                .map(|n| n as u64);
        let tokens = config.micro_rows() * model.max_seq_len as u64;
        let (k, c) = (model.num_experts_per_token as u64, model.latent_dim as u64);
        let way = config.parallel.dispatch.way_size(tokens, k, c, e, shards);
        let all = Parameters::new(model, &config.optimizer, shards);
        let norm = d + 2 * d * model.gated_norm_rank as u64;
        let vocabulary = v * d;
        let accumulates = config.micro_rows() < config.rows_per_rank();
        let margins = if accumulates {
            // The histograms of this micro-batch, and of all before it.
            2 * COUNT * e * model.quantile_bins as u64
        } else {
            WORD * e * tokens
        };
        let logits = LOGITS.max(LEAST_LOGIT_ROWS * v).min(tokens * v);
        // Of the loss's input and of the head, in the forward pass already.
        let loss_gradients = tokens * d + vocabulary;
        Self {
            all,
            vocabulary,
            block_parameters: (all.trained - 2 * (vocabulary + norm)) / layers,
            expert_parameters: 3 * e / shards * c * model.intermediate_dim as u64,
            layers,
            block: model.block_words(tokens, &way),
            ends: tokens * (2 * model.norm_words() + d),
            statistics: layers * margins,
            loss: loss_gradients + logits,
            exchange: way.buffer_words,
            waves: way.expert_rows / way.wave_rows.max(1),
            accumulates,
        }
    }

    fn mode(&self, recompute: Recompute) -> ModeMemory {
        let BlockWords { input, decision, delivered, inner, temporary } = self.block;
        let (kept, again) = match recompute {
            Recompute::None => (input + decision + inner, 0),
            Recompute::Block => (input + decision, inner),
            Recompute::SaveMoe => (input + decision + delivered, inner),
        };
        let activations = self.ends + self.layers * kept;
        // Gradients that have not joined a sum: all of a block's where one is there, else those
        // of experts that one wave adds to the waves before.
        let fresh = if self.accumulates { self.block_parameters } else { 0 };
        let of_waves = if self.waves > 1 { self.expert_parameters } else { 0 };
        let block = again + temporary + self.exchange + fresh + of_waves;
        let sums = if self.accumulates { self.all.trained } else { 0 };
        let at_loss = sums + activations + self.loss;
        let first_sums = sums.max(self.vocabulary + self.block_parameters);
        let at_last_block = first_sums + activations + block;
        let last_sums = sums.max(self.all.trained - self.vocabulary);
        let at_first_block = last_sums + activations - (self.layers - 1) * kept + block;
        let most = at_loss.max(at_last_block).max(at_first_block);
        ModeMemory {
            recompute,
            activations: WORD * activations,
            block: WORD * block,
            peak: WORD * (self.all.held + most) + self.all.state_bytes + self.statistics,
        }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "memory of a rank and its micro-step, MiB")?;
        for (owner, bytes) in [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
            ("balancing statistics", self.statistics),
            ("logits and loss", self.loss),
            ("exchange buffers", self.exchange),
            ("beside it, in a save", self.saving),
        ] {
            writeln!(f, "  {owner:<22} {:>22.1}", mib(bytes))?;
        }
        writeln!(f, "  {:<22} {:>14} {:>14} {:>14}", "recompute", "activations", "block", "peak")?;
        for mode in &self.modes {
            let ModeMemory { recompute, activations, block, peak } = *mode;
            let [activations, block, peak] = [activations, block, peak].map(mib);
            let name = recompute.name();
            writeln!(f, "  {name:<22} {activations:>14.1} {block:>14.1} {peak:>14.1}")?;
        }
        Ok(())
    }
}
