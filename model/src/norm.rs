//! The norm of the residual stream: RMSNorm, then a low-rank gate.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fulmar_kernels::rms_norm::rms_norm;
use fulmar_kernels::{gated::sigmoid_gate, silu::silu};

use crate::compute::Compute;
use crate::config::ModelConfig;
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// `n sigmoid(silu(n down) up)` with `n = RMSNorm(x)` (SPEC section 2, GatedNorm).
#[derive(Module, Debug)]
pub struct GatedRmsNorm {
    /// `[d]`.
    pub gain: Param<Tensor<1>>,
    /// [d, rank].
    pub down: Param<Tensor<2>>,
    /// [rank, d].
    pub up: Param<Tensor<2>>,
    eps: f64,
    #[module(skip)]
    compute: Compute,
}

impl GatedRmsNorm {
    /// A norm with gain 1 and a random gate.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        let (d, rank) = (config.hidden_dim, config.gated_norm_rank);
        Self {
            gain: init.constant([d], 1.0),
            down: init.matrix("down", [d, rank]),
            up: init.matrix("up", [rank, d]),
            eps: config.norm_eps,
            compute: config.compute,
        }
    }

    /// `x` [t, d] to [t, d].
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let normed = rms_norm(x, self.gain.val(), self.eps);
        let inner = silu(self.compute.product(normed.clone(), self.down.val()));
        let gate = self.compute.product(inner, self.up.val());
        sigmoid_gate(normed, gate)
    }
}

impl Roles for GatedRmsNorm {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "gain", Role::Gain);
        table.declare(path, "down", Role::Matrix);
        table.declare(path, "up", Role::Matrix);
    }
}
