//! Which experts a token is sent to, and with what weight.

use burn::module::{Module, ModuleDisplay, Param};
use burn::tensor::{FloatDType, Int, Tensor};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::route::{Route, route};

use crate::config::{ModelConfig, RouterDot};
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// Chooses experts for tokens.
pub trait Router: Module + ModuleDisplay + Sync + 'static {
    /// Routes `u` [t, d].
    fn route(&self, u: Tensor<2>) -> Routing;

    /// Scores and weights of `u` [t, d] for experts that were chosen before, `selected` [t, k]: the
    /// bits of [`route`](Self::route), in values and gradients, without a choice.
    ///
    /// A block that is computed again asks for them. By default the router routes a second time.
    ///
    /// # Panics
    /// By default if it then chooses other experts.
    fn weigh(&self, u: Tensor<2>, selected: &Tensor<2, Int>) -> Weighed {
        let routing = self.route(u);
        let ids = |selected: Tensor<2, Int>| selected.into_data().iter::<i32>().collect::<Vec<_>>();
        assert_eq!(
            ids(routing.selected),
            ids(selected.clone()),
            "a router that chooses other experts for the same input; it needs a `Router::weigh`"
        );
        Weighed { logits: routing.logits, combine_weights: routing.combine_weights }
    }

    /// The bias `[e]` that balancing moves, if this router has one.
    fn bias(&self) -> Option<Tensor<1>> {
        None
    }

    /// Replaces the bias `[e]`; a router without one returns itself.
    #[must_use]
    fn with_bias(self, _bias: Tensor<1>) -> Self {
        self
    }
}

/// A router's decision for every token.
#[derive(Debug, Clone)]
pub struct Routing {
    /// Scores [t, e], without bias.
    pub logits: Tensor<2>,
    /// Chosen experts [t, k], best first; -1 in every slot of a token whose scores are not finite.
    pub selected: Tensor<2, Int>,
    /// Weight [t, k] of each chosen expert's output.
    pub combine_weights: Tensor<2>,
    /// The best biased score that was not chosen `[t]`, outside every graph.
    pub alpha: Tensor<1>,
}

/// What a router makes of a choice.
#[derive(Debug, Clone)]
pub struct Weighed {
    /// Scores [t, e], without bias.
    pub logits: Tensor<2>,
    /// Weight [t, k] of each chosen expert's output.
    pub combine_weights: Tensor<2>,
}

/// The recipe's router: biased top-k, weights from the sigmoid of the unbiased scores
/// (SPEC section 2, routed experts, steps 1 to 3).
#[derive(Module, Debug)]
pub struct SigmoidRouter {
    /// [d, e].
    pub weight: Param<Tensor<2>>,
    /// `[e]`, without gradient; balancing sets it.
    pub bias: Param<Tensor<1>>,
    num_experts_per_token: usize,
    routing_sum: f64,
    #[module(skip)]
    dot: RouterDot,
}

impl SigmoidRouter {
    /// With a random weight and bias 0.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        Self {
            weight: init.matrix("weight", [config.hidden_dim, config.num_experts]),
            bias: init.constant([config.num_experts], 0.0).set_require_grad(false),
            num_experts_per_token: config.num_experts_per_token,
            routing_sum: config.routing_sum,
            dot: config.router_dot,
        }
    }

    fn logits(&self, u: Tensor<2>) -> Tensor<2> {
        match self.dot {
            RouterDot::F32 => u.matmul(self.weight.val()),
            RouterDot::Bf16 => {
                let weight = self.weight.val().cast(FloatDType::BF16);
                u.cast(FloatDType::BF16).matmul(weight).cast(FloatDType::F32)
            }
        }
    }
}

impl Router for SigmoidRouter {
    fn route(&self, u: Tensor<2>) -> Routing {
        let logits = self.logits(u);
        let (k, sum) = (self.num_experts_per_token, self.routing_sum);
        let Route { selected, combine_weights, alpha } =
            route(logits.clone(), self.bias.val(), k, sum);
        Routing { logits, selected, combine_weights, alpha }
    }

    fn weigh(&self, u: Tensor<2>, selected: &Tensor<2, Int>) -> Weighed {
        let logits = self.logits(u);
        let combine_weights = combine_weights(logits.clone(), selected.clone(), self.routing_sum);
        Weighed { logits, combine_weights }
    }

    fn bias(&self) -> Option<Tensor<1>> {
        Some(self.bias.val().inner())
    }

    fn with_bias(mut self, bias: Tensor<1>) -> Self {
        self.bias = self.bias.map(|old| {
            assert_eq!(old.dims(), bias.dims(), "router bias: one value for each expert");
            Tensor::from_inner(bias)
        });
        self
    }
}

impl Roles for SigmoidRouter {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "weight", Role::Router);
        table.declare(path, "bias", Role::RouterBias);
    }
}
