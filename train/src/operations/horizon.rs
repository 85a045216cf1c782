//! Another horizon: the contingency of SPEC section 9.

use fulmar_data::Stage;

use super::{Operation, Position};
use crate::config::RunConfig;
use crate::context::{ContextStage, boundary_every};
use crate::error::TrainError;
use crate::optim::Replan;

/// The share of the budget within which the horizon may move.
pub const MAX_PROGRESS: f64 = 0.25;

/// Where the last phase of a mixture begins, over the horizon (SPEC section 5).
const LAST_PHASE: f64 = 0.8;

/// Moves the horizon of a run that stands at `at` to `steps` updates.
///
/// The rate goes on from where it stands and falls in a line to its final share at the new horizon.
/// A last phase of the mixture that began at 80% of the old horizon begins at 80% of the new one,
/// rounded down to a boundary of blocks; context stages that are not open yet move to the same share
/// of the run.
///
/// # Errors
/// If more than a quarter of the budget is spent, if nothing changes, or if what moves would come to
/// lie in the past.
pub fn move_horizon(config: &RunConfig, at: Position, steps: u64) -> Result<Operation, TrainError> {
    let old = config.schedule.horizon();
    let latest = (MAX_PROGRESS * old as f64) as u64;
    if at.step > latest {
        let rule = format!("at most {latest}, a quarter of the {old} updates of the plan");
        return Err(TrainError::config("--from", at.step, rule));
    }
    if steps <= at.step || steps == old {
        let rule = format!("above {} and another horizon than {old}", at.step);
        return Err(TrainError::config("--steps", steps, rule));
    }
    let replan = Replan { from: at.step, steps };
    let stages = move_last_phase(config, at, old, steps)?;
    let context = move_context(config, at, old, steps)?;
    Ok(Operation::Horizon { replan, stages, context })
}

/// The block at which the last phase of a run of `steps` updates begins.
fn last_phase_block(config: &RunConfig, steps: u64) -> Result<u64, TrainError> {
    let every = boundary_every(config)?;
    let batch = (LAST_PHASE * steps as f64) as u64 / every * every;
    Ok(batch * config.batch.rows / config.data.block_rows)
}

/// The stages with the last one moved, if its place follows from the horizon.
fn move_last_phase(
    config: &RunConfig,
    at: Position,
    old: u64,
    new: u64,
) -> Result<Option<Vec<Stage>>, TrainError> {
    let Some(stages) = &config.data.stages else { return Ok(None) };
    let last = stages.len() - 1;
    let by_rule = last_phase_block(config, old)?;
    if last == 0 || stages[last].from_block != by_rule {
        return Ok(None);
    }
    let block = last_phase_block(config, new)?;
    let begun = (at.batches * config.batch.rows).div_ceil(config.data.block_rows);
    let earliest = begun.max(stages[last - 1].from_block + 1);
    if block < earliest {
        let rule = format!(
            "a horizon whose last phase (block {block} of the mixture) begins at block {earliest} \
             or later"
        );
        return Err(TrainError::config("--steps", new, rule));
    }
    let mut stages = stages.clone();
    stages[last].from_block = block;
    Ok(Some(stages))
}

/// The context stages, those that are not open at the same share of the run as before.
fn move_context(
    config: &RunConfig,
    at: Position,
    old: u64,
    new: u64,
) -> Result<Vec<ContextStage>, TrainError> {
    let mut context = config.context.clone();
    for stage in context.iter_mut().filter(|stage| stage.opened_at.is_none()) {
        let share = stage.from_step as f64 / old as f64;
        let from_step = (share * new as f64).round() as u64;
        if from_step < at.step && stage.from_step > at.step {
            let len = stage.seq_len;
            let rule = format!("a horizon whose rows of {len} begin at step {} or later", at.step);
            return Err(TrainError::config("--steps", new, rule));
        }
        stage.from_step = from_step;
    }
    Ok(context)
}
