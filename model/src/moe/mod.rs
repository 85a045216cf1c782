//! The mixture of experts: route, compress, dispatch, compute, combine, expand.

pub mod balance;
pub mod experts;
pub mod grid;
pub mod latent;
pub mod observation;
mod over_ranks;
pub mod quantile;
pub mod router;
pub mod shared;
pub mod stats;

use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use fulmar_ep::{Demand, DispatchReport, EpError, ExpertRows, Keep, Retrace, TokenDispatcher};
use fulmar_kernels::sequence_balance::sequence_balance;

pub use stats::{LayerStats, RoutingStats};

use crate::config::ModelConfig;
use crate::init::Initializer;
use crate::role::{RoleTable, Roles, join};
use balance::Balancing;
use experts::Experts;
use latent::Latent;
use router::{Router, Routing, SigmoidRouter};
use shared::SharedExpert;

/// What a forward pass needs beside the model and its input.
#[derive(Debug)]
pub struct Routed<'a, D, B> {
    /// Carries rows to experts and back.
    pub dispatcher: &'a D,
    /// Balances experts. `None` in evaluation, so that its tokens leave no trace.
    pub balancing: Option<&'a B>,
    /// Which tokens are real, here and on the other shards, from the dispatcher's
    /// [`demand`](TokenDispatcher::demand).
    pub demand: &'a Demand,
    /// Tokens of a row; rows lie end to end, each whole on this shard.
    pub seq_len: usize,
}

/// What a layer decided for its tokens; with it the same tokens can be computed again.
#[derive(Clone)]
pub struct MoeDecision {
    /// Chosen experts [t, k].
    selected: Tensor<2, Int>,
    /// Where assignments went.
    way: Arc<dyn Retrace>,
    /// The rows of the sequence balance loss, where there is one.
    balanced: Option<BalancedRows>,
}

impl fmt::Debug for MoeDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoeDecision").finish_non_exhaustive()
    }
}

/// Routed experts in a latent space and shared experts beside them (SPEC section 2).
#[derive(Module, Debug)]
pub struct MoeLayer<R: Router = SigmoidRouter> {
    /// Chooses experts.
    pub router: R,
    /// Down to the width that travels, and back up.
    pub latent: Latent,
    /// The routed experts of this shard.
    pub experts: Experts,
    /// The experts of every token.
    pub shared: Vec<SharedExpert>,
    /// Whether training asks for the sequence balance loss.
    sequence_balance: bool,
}

impl MoeLayer<SigmoidRouter> {
    /// A layer with the recipe's router.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        Self::with_router(config, SigmoidRouter::new(config, &init.scope("router")), init)
    }
}

impl<R: Router> MoeLayer<R> {
    /// A layer with a router of the caller's and the experts of the initializer's shard.
    pub fn with_router(config: &ModelConfig, router: R, init: &Initializer) -> Self {
        let shared = (0..config.num_shared_experts)
            .map(|index| SharedExpert::new(config, &init.scope("shared").scope(index)));
        Self {
            router,
            latent: Latent::new(config, &init.scope("latent")),
            experts: Experts::new(config, &init.scope("experts")),
            shared: shared.collect(),
            sequence_balance: config.sequence_balance_loss > 0.0,
        }
    }

    /// The same layer with the pending values `[e]` of balancing as its router's bias.
    #[must_use]
    pub fn with_pending<B: Balancing>(mut self, balancing: &B, pending: &[f32]) -> Self {
        let device = self.latent.gain.val().inner().device();
        let bias = balancing.bias(pending);
        let bias = Tensor::from_data(TensorData::from(&bias[..]), &device);
        self.router = self.router.with_bias(bias);
        self
    }

    /// `u` [t, d], normalised, to [t, d] with what happened on the way.
    ///
    /// # Errors
    /// If a score is not finite or the exchange fails.
    ///
    /// # Panics
    /// If the layer does not hold as many experts as the dispatcher brings rows for.
    pub fn forward<D: TokenDispatcher, B: Balancing>(
        &self,
        u: Tensor<2>,
        routed: &Routed<'_, D, B>,
    ) -> Result<(Tensor<2>, LayerStats<B::Stats>), EpError> {
        let dispatcher = self.served_by(routed);
        let (routing, rows) = (self.router.route(u.clone()), self.latent.compress(u.clone()));
        let sent = dispatcher.dispatch(rows, routing.selected.clone(), routed.demand)?;
        let outputs = self.expert_outputs(sent.waves);
        let weights = routing.combine_weights.clone();
        let combined = dispatcher.combine(outputs, weights, sent.handle)?;
        let out = self.expanded(combined.tokens, &u);
        Ok((out, self.observed(routing, combined.report, routed)))
    }

    /// As [`forward`](Self::forward), with what was decided; `keep` says what of the exchanges.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the dispatcher's ways cannot be taken again.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_keeping<D: TokenDispatcher, B: Balancing>(
        &self,
        u: Tensor<2>,
        routed: &Routed<'_, D, B>,
        keep: Keep,
    ) -> Result<(Tensor<2>, LayerStats<B::Stats>, MoeDecision), EpError> {
        let dispatcher = self.served_by(routed);
        let (routing, rows) = (self.router.route(u.clone()), self.latent.compress(u.clone()));
        let selected = routing.selected.clone();
        let sent = dispatcher.dispatch_keeping(rows, selected.clone(), routed.demand, keep)?;
        let outputs = self.expert_outputs(sent.waves);
        let weights = routing.combine_weights.clone();
        let (combined, way) = dispatcher.combine_keeping(outputs, weights, sent.handle)?;
        let out = self.expanded(combined.tokens, &u);
        let balanced = self.balanced_rows(routed);
        let stats = self.observed(routing, combined.report, routed);
        Ok((out, stats, MoeDecision { selected, way, balanced }))
    }

    /// `u` [t, d] to [t, d] by what was decided for it, with the sequence balance loss of its rows
    /// `[b]` where there is one. Nothing is observed.
    ///
    /// # Panics
    /// Unwinds with a [`TransportError`](fulmar_ep::transport::TransportError) if a peer is lost.
    pub fn forward_again(
        &self,
        u: Tensor<2>,
        decision: &MoeDecision,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let MoeDecision { selected, way, balanced } = decision;
        let weighed = self.router.weigh(u.clone(), selected);
        let waves = way.dispatch(self.latent.compress(u.clone()));
        let tokens = way.combine(self.expert_outputs(waves), weighed.combine_weights);
        let loss = balanced.as_ref().map(|rows| rows.loss(weighed.logits, selected.clone()));
        (self.expanded(tokens, &u), loss)
    }

    /// The dispatcher, if it is one of this layer's shard.
    fn served_by<'a, D: TokenDispatcher, B>(&self, routed: &Routed<'a, D, B>) -> &'a D {
        let (held, served) = (self.experts.count(), routed.dispatcher.local_experts());
        assert_eq!(
            held,
            served.len(),
            "a layer with {held} experts and a dispatcher for experts {served:?}; both must be of \
             one shard"
        );
        routed.dispatcher
    }

    fn expert_outputs(&self, waves: Vec<ExpertRows>) -> Vec<Tensor<2>> {
        waves.into_iter().map(|wave| self.experts.forward(wave)).collect()
    }

    /// What came back of the experts, at full width, with the shared experts of `u` beside it.
    fn expanded(&self, tokens: Tensor<2>, u: &Tensor<2>) -> Tensor<2> {
        let mut out = self.latent.expand(tokens);
        for expert in &self.shared {
            out = out + expert.forward(u.clone());
        }
        out
    }

    fn observed<D, B: Balancing>(
        &self,
        routing: Routing,
        report: DispatchReport,
        routed: &Routed<'_, D, B>,
    ) -> LayerStats<B::Stats> {
        let mut stats = LayerStats::observe(&routing, report, routed);
        let balanced = self.balanced_rows(routed);
        stats.sequence_balance = balanced.map(|rows| rows.loss(routing.logits, routing.selected));
        stats
    }

    fn balanced_rows<D, B>(&self, routed: &Routed<'_, D, B>) -> Option<BalancedRows> {
        let asked_for = self.sequence_balance && routed.balancing.is_some();
        asked_for.then(|| BalancedRows::new(routed))
    }
}

/// The rows that a sequence balance loss is of.
#[derive(Debug, Clone)]
struct BalancedRows {
    token_valid: Vec<i32>,
    seq_len: usize,
}

impl BalancedRows {
    fn new<D, B>(routed: &Routed<'_, D, B>) -> Self {
        let valid = routed.demand.token_valid().iter().map(|valid| i32::from(*valid));
        Self { token_valid: valid.collect(), seq_len: routed.seq_len }
    }

    /// The loss of each row `[b]`.
    fn loss(&self, logits: Tensor<2>, selected: Tensor<2, Int>) -> Tensor<1> {
        let token_valid = TensorData::from(&self.token_valid[..]);
        let token_valid = Tensor::from_data(token_valid, &selected.device());
        sequence_balance(logits, selected, token_valid, self.seq_len)
    }
}

impl<R: Router + Roles> Roles for MoeLayer<R> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        self.router.declare_roles(&join(path, "router"), table);
        self.latent.declare_roles(&join(path, "latent"), table);
        self.experts.declare_roles(&join(path, "experts"), table);
        self.shared.declare_roles(&join(path, "shared"), table);
    }
}
