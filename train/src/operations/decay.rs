//! Decay on head gates and router weights: the live run's intervention at step 58,014.

use super::{Operation, Position};
use crate::config::RunConfig;
use crate::error::TrainError;

/// Applies a decay that would be `decay` at step 0 and falls to 0 at the horizon, from `at` on.
///
/// # Errors
/// If it is out of range or in force already.
pub fn set_decay(config: &RunConfig, at: Position, decay: f64) -> Result<Operation, TrainError> {
    let now = config.optimizer.gate_router_decay;
    if !(0.0..1.0).contains(&decay) || decay == now {
        let rule = format!("at least 0, below 1, and another than the {now} in force");
        return Err(TrainError::config("--decay", decay, rule));
    }
    if now > 0.0 && config.optimizer.gate_router_decay_from < at.step {
        let rule = format!("no decay that has been applied before; {now} has been");
        return Err(TrainError::config("--decay", decay, rule));
    }
    Ok(Operation::Decay { from: at.step, decay })
}
