//! The routed experts of one shard.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fulmar_ep::ExpertRows;
use fulmar_kernels::grouped_swiglu::grouped_swiglu;

use crate::compute::Compute;
use crate::config::ModelConfig;
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// SwiGLU experts over rows sorted by expert.
#[derive(Module, Debug)]
pub struct Experts {
    /// [g, c, f].
    pub w_gate: Param<Tensor<3>>,
    /// [g, c, f].
    pub w_up: Param<Tensor<3>>,
    /// [g, f, c].
    pub w_down: Param<Tensor<3>>,
    #[module(skip)]
    compute: Compute,
}

impl Experts {
    /// The experts of the initializer's shard.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        let (c, f) = (config.latent_dim, config.intermediate_dim);
        let experts = init.local_experts(config.num_experts);
        Self {
            w_gate: init.experts("w_gate", experts.clone(), [c, f]),
            w_up: init.experts("w_up", experts.clone(), [c, f]),
            w_down: init.experts("w_down", experts, [f, c]),
            compute: config.compute,
        }
    }

    /// How many experts there are.
    pub fn count(&self) -> usize {
        self.w_gate.dims()[0]
    }

    /// `(silu(z w_gate) * (z w_up)) w_down` for each group of rows [r, c], to [r, c].
    pub fn forward(&self, wave: ExpertRows) -> Tensor<2> {
        let compute = self.compute;
        let weights = [self.w_gate.val(), self.w_up.val(), self.w_down.val()];
        let [gate, up, down] = weights.map(|weight| compute.operand(weight));
        let rows = compute.operand(wave.rows);
        compute.result(grouped_swiglu(rows, gate, up, down, &wave.groups))
    }
}

impl Roles for Experts {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        for stack in ["w_gate", "w_up", "w_down"] {
            table.declare(path, stack, Role::ExpertStack);
        }
    }
}
