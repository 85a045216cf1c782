//! Embedding, blocks, norm and head.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::TokenDispatcher;
use fulmar_kernels::cross_entropy::{CrossEntropy, TokenLosses, cross_entropy, token_losses};

use crate::block::Block;
use crate::config::ModelConfig;
use crate::error::ModelError;
use crate::init::Initializer;
use crate::moe::balance::Balancing;
use crate::moe::router::{Router, SigmoidRouter};
use crate::moe::{LayerStats, Routed};
use crate::norm::GatedRmsNorm;
use crate::recompute::BackwardPlan;
use crate::role::{Role, RoleTable, Roles, join};

/// A matrix that reads or writes tokens.
#[derive(Module, Debug)]
pub struct VocabularyMatrix {
    /// Embedding [v, d] or head [d, v].
    pub weight: Param<Tensor<2>>,
}

/// The whole model (SPEC section 2).
#[derive(Module, Debug)]
pub struct Transformer<R: Router = SigmoidRouter> {
    /// [v, d].
    pub embedding: VocabularyMatrix,
    /// After the embedding.
    pub embedding_norm: GatedRmsNorm,
    /// The layers.
    pub layers: Vec<Block<R>>,
    /// Before the head.
    pub final_norm: GatedRmsNorm,
    /// [d, v].
    pub head: VocabularyMatrix,
}

/// The rows of one forward pass on this rank.
#[derive(Debug, Clone)]
pub struct ModelInput {
    /// Token ids [b, s].
    pub tokens: Tensor<2, Int>,
    /// Which document of its row a position belongs to [b, s].
    pub segment_ids: Tensor<2, Int>,
    /// [b s], false for padding.
    pub token_valid: Vec<bool>,
}

impl ModelInput {
    /// From rows laid end to end.
    ///
    /// # Panics
    /// If the three do not have `shape[0] * shape[1]` entries each.
    pub fn new(
        tokens: Vec<i32>,
        segment_ids: Vec<i32>,
        token_valid: Vec<bool>,
        shape: [usize; 2],
        device: &Device,
    ) -> Self {
        assert_eq!(token_valid.len(), shape[0] * shape[1], "a validity for each token");
        Self {
            tokens: Tensor::from_data(TensorData::new(tokens, shape), device),
            segment_ids: Tensor::from_data(TensorData::new(segment_ids, shape), device),
            token_valid,
        }
    }
}

/// What a forward pass returns.
#[derive(Debug, Clone)]
pub struct ForwardOutput<S> {
    /// The head's input [t, d].
    pub hidden: Tensor<2>,
    /// One entry a layer.
    pub layers: Vec<LayerStats<S>>,
    /// The sequence balance loss of each row `[b]`, summed over layers and tracked; in training
    /// where the configuration gives it a weight.
    pub sequence_balance: Option<Tensor<1>>,
}

impl Transformer<SigmoidRouter> {
    /// A model with the recipe's router, weights drawn from `seed` and every expert on this rank.
    ///
    /// # Errors
    /// If the configuration breaks a rule.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ModelError> {
        Self::of_shard(config, seed, 0..config.num_experts, device)
    }

    /// The part of [`new`](Self::new)'s model that a shard holds: the routed experts with the
    /// global ids `experts`, and everything that is shared.
    ///
    /// # Errors
    /// If the configuration breaks a rule.
    ///
    /// # Panics
    /// If `experts` are none, or not among the configuration's.
    pub fn of_shard(
        config: &ModelConfig,
        seed: u64,
        experts: Range<usize>,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let init = Initializer::new(seed, config.initial_std(), device).of_shard(experts);
        Self::with_router(config, &init, SigmoidRouter::new)
    }
}

impl<R: Router> Transformer<R> {
    /// A model whose router for each layer is made by `router`, with the experts of the
    /// initializer's shard.
    ///
    /// # Errors
    /// If the configuration breaks a rule.
    ///
    /// # Panics
    /// If the shard's experts are none, or not among the configuration's.
    pub fn with_router(
        config: &ModelConfig,
        init: &Initializer,
        router: impl Fn(&ModelConfig, &Initializer) -> R,
    ) -> Result<Self, ModelError> {
        config.validate()?;
        let (v, d) = (config.vocab_size, config.hidden_dim);
        let layers = (0..config.num_layers).map(|layer| {
            let init = init.scope("layers").scope(layer);
            let router = router(config, &init.scope("moe").scope("router"));
            Block::with_router(config, layer, router, &init)
        });
        Ok(Self {
            embedding: VocabularyMatrix {
                weight: init.scope("embedding").matrix("weight", [v, d]),
            },
            embedding_norm: GatedRmsNorm::new(config, &init.scope("embedding_norm")),
            layers: layers.collect(),
            final_norm: GatedRmsNorm::new(config, &init.scope("final_norm")),
            head: VocabularyMatrix { weight: init.scope("head").matrix("weight", [d, v]) },
        })
    }

    /// The head's input for every token, and what each layer's routing did.
    ///
    /// # Errors
    /// [`ModelError::Dispatch`] naming the layer whose exchange failed.
    pub fn forward<D: TokenDispatcher, B: Balancing>(
        &self,
        input: &ModelInput,
        dispatcher: &D,
        balancing: Option<&B>,
    ) -> Result<ForwardOutput<B::Stats>, ModelError> {
        self.forward_by(None, input, dispatcher, balancing)
    }

    /// As [`forward`](Self::forward), for a backward pass by `plan`, whose sink then has the
    /// gradients of all parameters but those that [`loss_by`](Self::loss_by) brings.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_by<D: TokenDispatcher, B: Balancing>(
        &self,
        plan: Option<&BackwardPlan<'_>>,
        input: &ModelInput,
        dispatcher: &D,
        balancing: Option<&B>,
    ) -> Result<ForwardOutput<B::Stats>, ModelError> {
        let [b, s] = input.tokens.dims();
        let demand = dispatcher.demand(&input.token_valid).map_err(ModelError::Demand)?;
        let routed = Routed { dispatcher, balancing, demand: &demand, seq_len: s };
        let mut x = self.embed(&input.tokens, plan);
        let mut stats = Vec::with_capacity(self.layers.len());
        for (layer, block) in self.layers.iter().enumerate() {
            let out = match plan {
                Some(plan) => block.forward_by(plan, x, &input.segment_ids, &routed),
                None => block.forward(x, &input.segment_ids, &routed),
            };
            let (out, layer_stats) =
                out.map_err(|source| ModelError::Dispatch { layer, source })?;
            x = out;
            stats.push(layer_stats);
        }
        let d = x.dims()[2];
        let hidden = normed(&self.final_norm, x.reshape([b * s, d]), plan);
        let of_layers = stats.iter_mut().filter_map(|layer| layer.sequence_balance.take());
        let sequence_balance = of_layers.reduce(|sum, of_layer| sum + of_layer);
        Ok(ForwardOutput { hidden, layers: stats, sequence_balance })
    }

    /// What each layer's router reads [t, d], for a look at its decisions.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn router_inputs<D: TokenDispatcher, B: Balancing>(
        &self,
        input: &ModelInput,
        dispatcher: &D,
        balancing: Option<&B>,
    ) -> Result<Vec<Tensor<2>>, ModelError> {
        let demand = dispatcher.demand(&input.token_valid).map_err(ModelError::Demand)?;
        let [_, seq_len] = input.tokens.dims();
        let routed = Routed { dispatcher, balancing, demand: &demand, seq_len };
        let mut x = self.embed(&input.tokens, None);
        let mut inputs = Vec::with_capacity(self.layers.len());
        for (layer, block) in self.layers.iter().enumerate() {
            let attended = block.attend(x, &input.segment_ids);
            inputs.push(block.router_input(&attended));
            let mixed = block.mix(attended, &input.segment_ids, &routed);
            x = mixed.map_err(|source| ModelError::Dispatch { layer, source })?.0;
        }
        Ok(inputs)
    }

    /// Scores [t, v] of `hidden` [t, d]; training never holds them, see [`loss`](Self::loss).
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        hidden.matmul(self.head.weight.val())
    }

    /// Summed cross-entropy and z-loss of `hidden` [t, d] for `targets` `[t]` with `weight` `[t]`.
    pub fn loss(
        &self,
        hidden: Tensor<2>,
        targets: Tensor<1, Int>,
        weight: Tensor<1>,
        z_loss: f64,
    ) -> CrossEntropy {
        cross_entropy(hidden, self.head.weight.val(), targets, weight, z_loss)
    }

    /// As [`loss`](Self::loss), with the head's gradient to the sink of `plan`.
    pub fn loss_by(
        &self,
        plan: &BackwardPlan<'_>,
        hidden: Tensor<2>,
        targets: Tensor<1, Int>,
        weight: Tensor<1>,
        z_loss: f64,
    ) -> CrossEntropy {
        let head = plan.gradients.tap(&self.head.weight, &hidden);
        cross_entropy(hidden, head, targets, weight, z_loss)
    }

    /// Nats of every target `[t]`, for evaluation.
    pub fn token_losses(&self, hidden: Tensor<2>, targets: Tensor<1, Int>) -> TokenLosses {
        token_losses(hidden, self.head.weight.val(), targets)
    }

    /// The same model with each layer's pending balance as its router's bias.
    #[must_use]
    pub fn with_pending<B: Balancing>(mut self, balancing: &B, pending: &[Vec<f32>]) -> Self {
        for (block, pending) in self.layers.iter_mut().zip(pending) {
            block.moe = block.moe.clone().with_pending(balancing, pending);
        }
        self
    }

    /// Scales the queries of every layer by `qk_mult` from now on: longer rows want a larger one
    /// (SPEC section 9).
    pub fn set_qk_mult(&mut self, qk_mult: f64) {
        for block in &mut self.layers {
            block.attention.set_qk_mult(qk_mult);
        }
    }

    pub(crate) fn embed(
        &self,
        tokens: &Tensor<2, Int>,
        plan: Option<&BackwardPlan<'_>>,
    ) -> Tensor<3> {
        let [b, s] = tokens.dims();
        let mut embedding = self.embedding.weight.val();
        if let Some(plan) = plan {
            // Nothing came before it.
            let untracked = embedding.inner();
            embedding = plan.gradients.tap(&self.embedding.weight, &untracked);
        }
        let rows = embedding.select(0, tokens.clone().reshape([b * s]));
        let d = rows.dims()[1];
        normed(&self.embedding_norm, rows, plan).reshape([b, s, d])
    }
}

fn normed(norm: &GatedRmsNorm, x: Tensor<2>, plan: Option<&BackwardPlan<'_>>) -> Tensor<2> {
    match plan {
        Some(plan) => plan.gradients.tapped(norm, &x).forward(x),
        None => norm.forward(x),
    }
}

impl<R: Router + Roles> Roles for Transformer<R> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(&join(path, "embedding"), "weight", Role::Embedding);
        self.embedding_norm.declare_roles(&join(path, "embedding_norm"), table);
        self.layers.declare_roles(&join(path, "layers"), table);
        self.final_norm.declare_roles(&join(path, "final_norm"), table);
        table.declare(&join(path, "head"), "weight", Role::Head);
    }
}
