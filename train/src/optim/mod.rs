//! Which rule each parameter follows, and the update of a whole model.

mod gradients;
mod joint;
mod norms;
mod over_ranks;
pub mod rates;
pub mod rule;
pub mod schedule;
pub mod update;

pub use gradients::Gradients;
pub use norms::Norms;
pub use rates::{Peaks, RateFit};
pub use rule::{OptimizerTable, Rule};
pub use schedule::{Replan, Schedule};
pub use update::{Optimizer, StepRates};

use burn::tensor::DType;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How MuonH takes the norms of its hyperball step in a stack of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MuonHNormKind {
    /// Each expert's matrix keeps its own norm.
    #[default]
    PerExpert,
    /// One norm over the stack, as the live hero run is reported to do.
    Joint,
}

/// Arithmetic of Newton-Schulz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewtonSchulzKind {
    /// Products in f32.
    #[default]
    F32,
    /// Products in bf16, as the recipe does on a GPU.
    Bf16,
}

/// What the momentum of MuonH is stored as; updates are computed in f32 from what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MomentumDtype {
    /// f32, as the recipe has it.
    #[default]
    F32,
    /// bf16, rounded to nearest, ties to even: half the memory, also in checkpoints. The moments of
    /// Adam stay f32: with a slow second decay (up to 0.9999) what a step adds to the second one is
    /// less than half the distance of two bf16, and would be lost.
    Bf16,
}

impl MomentumDtype {
    /// The type of the tensors.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}

/// The optimizer of a run (SPEC section 4). What is not given follows from the budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// The fit that turns a budget into peak rates.
    pub rate_fit: RateFit,
    /// Peak rate of Adam; from the fit when absent.
    pub peak_lr_adam: Option<f64>,
    /// Peak rate of MuonH and AdamH; 13/3 of Adam's when absent.
    pub peak_lr_muonh: Option<f64>,
    /// Decay of the first moment of Adam and AdamH.
    pub beta1: f64,
    /// Decay of the second moment; from the batch when absent.
    pub beta2: Option<f64>,
    /// Added to the root of the second moment; from the budget when absent.
    pub epsilon: Option<f64>,
    /// Momentum of MuonH.
    pub momentum: f64,
    /// What that momentum is stored as.
    pub momentum_dtype: MomentumDtype,
    /// Norms of MuonH's hyperball step.
    pub muonh_norm: MuonHNormKind,
    /// Arithmetic of Newton-Schulz.
    pub newton_schulz: NewtonSchulzKind,
    /// Decay on head gates and router weights at the first step, falling linearly to 0 over the
    /// run; 0 by default, 0.02 in the hero run from step 58,014.
    pub gate_router_decay: f64,
    /// Completed updates after which that decay is applied; what it has fallen to by then is as if
    /// it had been applied from the start.
    pub gate_router_decay_from: u64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            rate_fit: RateFit::default(),
            peak_lr_adam: None,
            peak_lr_muonh: None,
            beta1: 0.9062,
            beta2: None,
            epsilon: None,
            momentum: 0.95,
            momentum_dtype: MomentumDtype::default(),
            muonh_norm: MuonHNormKind::default(),
            newton_schulz: NewtonSchulzKind::default(),
            gate_router_decay: 0.0,
            gate_router_decay_from: 0,
        }
    }
}

impl OptimizerConfig {
    /// Bytes of state for each entry of a parameter under `rule`.
    pub fn state_bytes(&self, rule: Rule) -> u64 {
        let bytes = match rule {
            Rule::MuonH => self.momentum_dtype.dtype().size(),
            Rule::Adam | Rule::AdamH => 2 * DType::F32.size(),
            Rule::Fixed => 0,
        };
        bytes as u64
    }

    /// Checks each given value.
    ///
    /// # Errors
    /// [`TrainError::Config`] with field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        let below_one = "at least 0 and below 1";
        let unit = [
            ("optimizer.beta1", Some(self.beta1)),
            ("optimizer.beta2", self.beta2),
            ("optimizer.momentum", Some(self.momentum)),
            ("optimizer.gate_router_decay", Some(self.gate_router_decay)),
        ];
        for (field, value) in unit {
            if let Some(value) = value.filter(|value| !(0.0..1.0).contains(value)) {
                return Err(TrainError::config(field, value, below_one));
            }
        }
        let positive = [
            ("optimizer.peak_lr_adam", self.peak_lr_adam),
            ("optimizer.peak_lr_muonh", self.peak_lr_muonh),
            ("optimizer.epsilon", self.epsilon),
        ];
        for (field, value) in positive {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(TrainError::config(field, value, "a finite number above 0"));
            }
        }
        Ok(())
    }
}
