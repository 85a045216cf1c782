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

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use fulmar_ep::{Demand, EpError, TokenDispatcher};
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
        let (held, served) = (self.experts.count(), routed.dispatcher.local_experts());
        assert_eq!(
            held,
            served.len(),
            "a layer with {held} experts and a dispatcher for experts {served:?}; both must be of \
             one shard"
        );
        let routing = self.router.route(u.clone());
        let rows = self.latent.compress(u.clone());

        let dispatched =
            routed.dispatcher.dispatch(rows, routing.selected.clone(), routed.demand)?;
        let outputs = dispatched.waves.into_iter().map(|wave| self.experts.forward(wave)).collect();
        let combined = routed.dispatcher.combine(
            outputs,
            routing.combine_weights.clone(),
            dispatched.handle,
        )?;

        let mut out = self.latent.expand(combined.tokens);
        for expert in &self.shared {
            out = out + expert.forward(u.clone());
        }
        let mut stats = LayerStats::observe(&routing, combined.report, routed);
        if self.sequence_balance && routed.balancing.is_some() {
            stats.sequence_balance = Some(sequence_balance_of(routing, routed));
        }
        Ok((out, stats))
    }
}

/// The loss of each row `[b]`.
fn sequence_balance_of<D, B>(routing: Routing, routed: &Routed<'_, D, B>) -> Tensor<1> {
    let token_valid: Vec<i32> =
        routed.demand.token_valid().iter().map(|valid| i32::from(*valid)).collect();
    let token_valid = TensorData::from(&token_valid[..]);
    let token_valid = Tensor::from_data(token_valid, &routing.selected.device());
    sequence_balance(routing.logits, routing.selected, token_valid, routed.seq_len)
}

impl<R: Router + Roles> Roles for MoeLayer<R> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        self.router.declare_roles(&join(path, "router"), table);
        self.latent.declare_roles(&join(path, "latent"), table);
        self.experts.declare_roles(&join(path, "experts"), table);
        self.shared.declare_roles(&join(path, "shared"), table);
    }
}
