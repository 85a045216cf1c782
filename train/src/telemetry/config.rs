//! What is reported: the recipe's `[log]`.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// What is reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Steps between lines on a console that is no terminal.
    pub every: u64,
    /// Whether metrics of single layers are logged.
    pub per_layer: bool,
    /// Steps between norms of parameters and gradients by role and by layer; 0 for never.
    pub norms_every: u64,
    /// Whether metrics also go to TensorBoard's event files.
    pub tensorboard: bool,
    /// FLOP/s that one process's device can reach, for the share of it that a run uses; measured
    /// by a product of matrices when absent.
    pub peak_flops_per_second: Option<f64>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            every: 10,
            per_layer: true,
            norms_every: 10,
            tensorboard: true,
            peak_flops_per_second: None,
        }
    }
}

impl LogConfig {
    /// Checks each value.
    ///
    /// # Errors
    /// [`TrainError::Config`] with field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        if self.every == 0 {
            return Err(TrainError::config("log.every", 0, "at least 1"));
        }
        match self.peak_flops_per_second {
            Some(peak) if !(peak.is_finite() && peak > 0.0) => {
                let rule = "a finite number above 0";
                Err(TrainError::config("log.peak_flops_per_second", peak, rule))
            }
            _ => Ok(()),
        }
    }
}
