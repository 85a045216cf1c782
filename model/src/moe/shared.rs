//! An expert that every token passes through.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fulmar_kernels::gated::swiglu;

use crate::compute::Compute;
use crate::config::ModelConfig;
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// `(silu(u w_gate) * (u w_up)) w_down` at full width.
#[derive(Module, Debug)]
pub struct SharedExpert {
    /// [d, inner].
    pub w_gate: Param<Tensor<2>>,
    /// [d, inner].
    pub w_up: Param<Tensor<2>>,
    /// [inner, d].
    pub w_down: Param<Tensor<2>>,
    #[module(skip)]
    compute: Compute,
}

impl SharedExpert {
    /// With random weights.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        let (d, inner) = (config.hidden_dim, config.shared_intermediate_dim);
        Self {
            w_gate: init.matrix("w_gate", [d, inner]),
            w_up: init.matrix("w_up", [d, inner]),
            w_down: init.matrix("w_down", [inner, d]),
            compute: config.compute,
        }
    }

    /// `u` [t, d] to [t, d].
    pub fn forward(&self, u: Tensor<2>) -> Tensor<2> {
        let compute = self.compute;
        let u = compute.operand(u);
        let gate = compute.product(u.clone(), self.w_gate.val());
        let up = compute.product(u, self.w_up.val());
        compute.product(swiglu(gate, up), self.w_down.val())
    }
}

impl Roles for SharedExpert {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        for matrix in ["w_gate", "w_up", "w_down"] {
            table.declare(path, matrix, Role::Matrix);
        }
    }
}
