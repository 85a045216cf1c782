//! One more stage of longer rows.

use super::{Operation, Position};
use crate::config::RunConfig;
use crate::context::ContextStage;
use crate::error::TrainError;

/// Plans `stage` behind the stages that there are.
///
/// # Errors
/// If it lies in the past, or its rows are longer than the longest row that data were shuffled for
/// (`data.longest_row`), or do not divide it.
pub fn plan_context(
    config: &RunConfig,
    at: Position,
    stage: ContextStage,
) -> Result<Operation, TrainError> {
    if stage.from_step < at.step {
        let rule = format!("at least {}, where the run stands", at.step);
        return Err(TrainError::config("--context", stage.from_step, rule));
    }
    let longest = config.longest_row();
    if stage.seq_len > longest || !longest.is_multiple_of(stage.seq_len) {
        let rule = format!("a divisor of {longest}, the longest row that data were shuffled for");
        return Err(TrainError::config("--context", stage.seq_len, rule));
    }
    Ok(Operation::Context { stage })
}
