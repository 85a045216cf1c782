//! Compression to the width that travels between shards, and expansion after the combine.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fulmar_kernels::rms_norm::rms_norm;

use crate::compute::Compute;
use crate::config::ModelConfig;
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// `RMSNorm(u down)` on the way to the experts, `y up` on the way back.
#[derive(Module, Debug)]
pub struct Latent {
    /// [d, c].
    pub down: Param<Tensor<2>>,
    /// `[c]`.
    pub gain: Param<Tensor<1>>,
    /// [c, d].
    pub up: Param<Tensor<2>>,
    eps: f64,
    #[module(skip)]
    compute: Compute,
}

impl Latent {
    /// With random projections and gain 1.
    pub fn new(config: &ModelConfig, init: &Initializer) -> Self {
        let (d, c) = (config.hidden_dim, config.latent_dim);
        Self {
            down: init.matrix("down", [d, c]),
            gain: init.constant([c], 1.0),
            up: init.matrix("up", [c, d]),
            eps: config.norm_eps,
            compute: config.compute,
        }
    }

    /// `u` [t, d] to [t, c].
    pub fn compress(&self, u: Tensor<2>) -> Tensor<2> {
        rms_norm(self.compute.product(u, self.down.val()), self.gain.val(), self.eps)
    }

    /// `y` [t, c] to [t, d].
    pub fn expand(&self, y: Tensor<2>) -> Tensor<2> {
        self.compute.product(y, self.up.val())
    }
}

impl Roles for Latent {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "down", Role::Matrix);
        table.declare(path, "gain", Role::Gain);
        table.declare(path, "up", Role::Matrix);
    }
}
