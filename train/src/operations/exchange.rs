//! Another exchange from some step on; no state depends on it.

use fulmar_ep::DispatchConfig;

use super::{Operation, Position};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::parallel::DispatchSwitch;

/// Takes `dispatch` for every update from `at` on.
///
/// # Errors
/// If a switch is planned for a later step, or it is the exchange in force.
pub fn switch_exchange(
    config: &RunConfig,
    at: Position,
    dispatch: DispatchConfig,
) -> Result<Operation, TrainError> {
    let now = config.parallel.dispatch_at(at.step);
    if *now == dispatch {
        let rule = format!("another exchange than the one in force, {now:?}");
        return Err(TrainError::config("--exchange", format!("{dispatch:?}"), rule));
    }
    if let Some(last) = config.parallel.switches.last().filter(|last| last.step >= at.step) {
        let rule = format!("a step after {}, for which the plan has a switch", last.step);
        return Err(TrainError::config("--from", at.step, rule));
    }
    Ok(Operation::Exchange { switch: DispatchSwitch { step: at.step, dispatch } })
}
