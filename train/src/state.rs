//! What a run is between two steps.

use std::collections::BTreeMap;

use burn::tensor::Device;
use fulmar_ep::World;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_model::role::Roles;
use fulmar_model::{Role, RoleTable, Transformer, weights};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::optim::{Optimizer, OptimizerTable};
use crate::step::StepReport;

/// Everything a step reads and changes; a checkpoint holds exactly this.
#[derive(Debug)]
pub struct TrainState {
    /// The model, its parameters leaves of fresh graphs.
    pub model: Transformer,
    /// Table, constants and moments.
    pub optimizer: Optimizer,
    /// Pending balance `[layers, e]`, which becomes the router biases at the start of the next
    /// step; empty before the first.
    pub pending: Vec<Vec<f32>>,
    /// Completed updates.
    pub step: u64,
    /// Batches taken, skipped ones included; the position in the data.
    pub batches: u64,
    /// Assignments since the last boundary of blocks, which the gate of longer rows looks at.
    pub since_boundary: Assignments,
}

/// Assignments of some steps, over all layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignments {
    /// Of valid tokens.
    pub valid: u64,
    /// Of those, the dropped ones.
    pub dropped: u64,
}

impl Assignments {
    /// Adds those of a step.
    pub fn add(&mut self, report: &StepReport) {
        for layer in &report.layers {
            self.valid += layer.counts.valid;
            self.dropped += layer.counts.sender_dropped + layer.counts.receiver_dropped;
        }
    }

    /// The share that was dropped; 0 of none.
    pub fn drop_fraction(&self) -> f64 {
        if self.valid == 0 { 0.0 } else { self.dropped as f64 / self.valid as f64 }
    }
}

impl TrainState {
    /// The state of a rank of `world` before the first step.
    ///
    /// # Errors
    /// If the configuration breaks a rule or a parameter has no role.
    pub fn new(config: &RunConfig, world: &World, device: &Device) -> Result<Self, TrainError> {
        let device = device.clone().autodiff();
        let experts = world.experts(config.model.num_experts);
        let model = Transformer::of_shard(&config.model, config.seed, experts, &device)?;
        let roles = model.roles();
        let shapes = global_shapes(&roles, weights::shapes(&model), config.model.num_experts);
        let table = OptimizerTable::new(&roles, &shapes)?;
        let optimizer = Optimizer::new(table, config.optimizer.clone(), config.peaks());
        let since_boundary = Assignments::default();
        Ok(Self { model, optimizer, pending: Vec::new(), step: 0, batches: 0, since_boundary })
    }

    /// The model as evaluation and export see it: with the pending balance applied.
    pub fn evaluation_model(&self, balancing: &QuantileBalancing) -> Transformer {
        self.model.clone().with_pending(balancing, &self.pending)
    }
}

/// The balancing of a run: one pass over the step's margins where one micro-batch of each rank sees
/// them all, else the aligned grid.
pub fn balancing(config: &RunConfig) -> QuantileBalancing {
    let one_pass = config.micro_rows() == config.rows_per_rank();
    let range = if one_pass { MarginRange::OnePass } else { MarginRange::Grid };
    QuantileBalancing { bins: config.model.quantile_bins, range }
}

/// Shapes over all shards: a stack has every expert, whichever of them are here.
fn global_shapes(
    roles: &RoleTable,
    mut shapes: BTreeMap<String, Vec<usize>>,
    num_experts: usize,
) -> BTreeMap<String, Vec<usize>> {
    for (path, shape) in &mut shapes {
        if roles.get(path) == Some(Role::ExpertStack) {
            shape[0] = num_experts;
        }
    }
    shapes
}
