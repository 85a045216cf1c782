//! What a run is between two steps.

use burn::tensor::Device;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_model::role::Roles;
use fulmar_model::{Transformer, weights};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::optim::{Optimizer, OptimizerTable};

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
}

impl TrainState {
    /// The state before the first step.
    ///
    /// # Errors
    /// If the configuration breaks a rule or a parameter has no role.
    pub fn new(config: &RunConfig, device: &Device) -> Result<Self, TrainError> {
        let device = device.clone().autodiff();
        let model = Transformer::new(&config.model, config.seed, &device)?;
        let table = OptimizerTable::new(&model.roles(), &weights::shapes(&model))?;
        let optimizer = Optimizer::new(table, config.optimizer.clone(), config.peaks());
        Ok(Self { model, optimizer, pending: Vec::new(), step: 0, batches: 0 })
    }

    /// The model as evaluation and export see it: with the pending balance applied.
    pub fn evaluation_model(&self, balancing: &QuantileBalancing) -> Transformer {
        self.model.clone().with_pending(balancing, &self.pending)
    }
}

/// The balancing of a run: one pass over the step's margins where one micro-batch sees them all,
/// else the aligned grid.
pub fn balancing(config: &RunConfig) -> QuantileBalancing {
    let one_pass = config.batch.micro_rows() == config.batch.rows;
    let range = if one_pass { MarginRange::OnePass } else { MarginRange::Grid };
    QuantileBalancing { bins: config.model.quantile_bins, range }
}
