//! Changes of a run in its course, each by a rule.
//!
//! The recipe that a run began with is never rewritten. What is changed later is an [`Operation`] in
//! the run's history, with reason, position and the plan before and after; the plan in force is the
//! recipe with all operations applied in their order. An operation touches only what lies ahead, so
//! that everything that was done stays a function of the plan.

mod branch;
mod context;
mod decay;
mod exchange;
mod horizon;
mod mixture;
mod past;
mod position;
mod table;

pub use branch::{branch, found_branch};
pub use context::plan_context;
pub use decay::set_decay;
pub use exchange::switch_exchange;
pub use horizon::{MAX_PROGRESS, move_horizon};
pub use mixture::{change_mixture, read_stages};
pub(crate) use past::first_difference;
pub use past::same_past;
pub use position::position;
pub use table::Comparison;

use std::path::Path;

use fulmar_data::Stage;
use fulmar_ep::World;
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::context::ContextStage;
use crate::error::TrainError;
use crate::history::{Event, HISTORY_FILE, History, STARTED};
use crate::optim::Replan;
use crate::parallel::DispatchSwitch;

/// What events of operations are called.
pub const OPERATION: &str = "operation";

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Completed updates.
    pub step: u64,
    /// Batches taken.
    pub batches: u64,
}

/// One change of a run's plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Another horizon: the decay is re-timed, phases and planned context stages move with it.
    Horizon {
        /// The join and the new horizon.
        replan: Replan,
        /// The mixture's stages from now on, if a phase boundary moved.
        stages: Option<Vec<Stage>>,
        /// The context stages from now on.
        context: Vec<ContextStage>,
    },
    /// Other weights of cells from a later block on.
    Mixture {
        /// All stages: those that have begun, then new ones.
        stages: Vec<Stage>,
    },
    /// Another exchange.
    Exchange {
        /// From which step, and which.
        switch: DispatchSwitch,
    },
    /// Decay on head gates and router weights.
    Decay {
        /// Completed updates from which it is applied.
        from: u64,
        /// Its value as of step 0; it falls to 0 at the horizon.
        decay: f64,
    },
    /// One more planned context stage.
    Context {
        /// The stage.
        stage: ContextStage,
    },
    /// A context stage whose gate has opened; the run's own doing.
    ContextOpened {
        /// Its index.
        stage: usize,
        /// Batches taken then.
        at_batch: u64,
    },
}

impl Operation {
    /// Its name in events.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Horizon { .. } => "horizon",
            Self::Mixture { .. } => "mixture",
            Self::Exchange { .. } => "exchange",
            Self::Decay { .. } => "decay",
            Self::Context { .. } => "context",
            Self::ContextOpened { .. } => "context_opened",
        }
    }

    /// The plan with this change; validated.
    ///
    /// # Errors
    /// If the plan does not allow it: another recipe than the one it was made for, or a broken rule.
    pub fn apply(&self, config: &RunConfig) -> Result<RunConfig, TrainError> {
        let mut config = config.clone();
        match self.clone() {
            Self::Horizon { replan, stages, context } => {
                config.schedule.replans.push(replan);
                config.data.stages = stages.or(config.data.stages);
                config.data.longest_row.get_or_insert(config.longest_row());
                config.context = context;
            }
            Self::Mixture { stages } => config.data.stages = Some(stages),
            Self::Exchange { switch } => config.parallel.switches.push(switch),
            Self::Decay { from, decay } => {
                config.optimizer.gate_router_decay = decay;
                config.optimizer.gate_router_decay_from = from;
            }
            Self::Context { stage } => {
                // Data are shuffled in units of the longest row, which must not change any more.
                config.data.longest_row.get_or_insert(config.longest_row());
                config.context.push(stage);
            }
            Self::ContextOpened { stage, at_batch } => {
                let stages = config.context.len();
                let rule = format!("the index of one of {stages} stages");
                let problem = || TrainError::config("operation.stage", stage, rule);
                config.context.get_mut(stage).ok_or_else(problem)?.opened_at = Some(at_batch);
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// The event that records it.
    pub fn event(&self, at: Position, attempt: u64, reason: &str, change: &Comparison) -> Event {
        Event::now(at.step, attempt, OPERATION, reason)
            .with("batches", at.batches)
            .with("operation", value(self))
            .with("change", value(change))
    }

    /// Whether it is a context stage that opened after so many batches were taken.
    pub(crate) fn opens_after(&self, batches: u64) -> bool {
        matches!(self, Self::ContextOpened { at_batch, .. } if *at_batch > batches)
    }

    /// The operation of an event, if it is one of those.
    fn of_event(event: &Event) -> Option<Result<Self, serde_json::Error>> {
        let operation = event.detail.get("operation").filter(|_| event.what == OPERATION)?;
        Some(serde_json::from_value(operation.clone()))
    }
}

fn value<T: Serialize>(plain: &T) -> serde_json::Value {
    serde_json::to_value(plain).expect("plain values")
}

/// The operations of the run in `folder`, with the events that record them, in their order. What an
/// attempt decided itself is left out where a later one began before that: it decided anew, and at
/// another layout other assignments may have been dropped.
///
/// # Errors
/// If the history cannot be read, or one of its operations is of no known kind.
pub fn of_run(folder: &Path) -> Result<Vec<(Event, Operation)>, TrainError> {
    of_events(&History::read(folder)?, folder)
}

/// As [`of_run`], of the events in the history of the run in `folder`.
pub(crate) fn of_events(
    events: &[Event],
    folder: &Path,
) -> Result<Vec<(Event, Operation)>, TrainError> {
    let mut operations = Vec::new();
    for event in events {
        if let Some(began) = event.detail.get("batches").filter(|_| event.what == STARTED) {
            let began = began.as_u64().unwrap_or(0);
            operations.retain(|(_, operation): &(Event, Operation)| !operation.opens_after(began));
        }
        let Some(operation) = Operation::of_event(event) else { continue };
        let operation = operation.map_err(|error| TrainError::Recipe {
            origin: folder.join(HISTORY_FILE).display().to_string(),
            field: format!("operation at step {}", event.step),
            problem: error.to_string(),
        })?;
        operations.push((event.clone(), operation));
    }
    Ok(operations)
}

/// The operations of the run in `folder` as the first rank finds them, on every rank: others may
/// not see that folder.
///
/// # Errors
/// As [`of_run`], or if a peer is lost.
pub fn of_all_ranks(folder: &Path, world: &World) -> Result<Vec<Operation>, TrainError> {
    let mut own = Vec::new();
    if world.is_first() {
        own.extend(of_run(folder)?.into_iter().map(|(_, operation)| operation));
    }
    let own = serde_json::to_vec(&own).expect("plain values");
    let first = world.all.bytes_of_first("operations of the run", &own)?;
    Ok(serde_json::from_slice(&first).expect("operations of the first rank"))
}

/// The plan in force of the run in `folder` that goes on from `at`: `recipe` with every operation.
///
/// What the run itself decided there or later is left out: it decides again, and the same, since it
/// looks at the same figures.
///
/// # Errors
/// As [`of_run`] and [`Operation::apply`].
pub fn plan_in_force(
    recipe: &RunConfig,
    folder: &Path,
    at: Position,
) -> Result<RunConfig, TrainError> {
    let operations: Vec<Operation> =
        of_run(folder)?.into_iter().map(|(_, operation)| operation).collect();
    // A state saved at a boundary of blocks is one from before a context stage opens there.
    let decides_again = |operation: &Operation| {
        matches!(operation,
            Operation::ContextOpened { at_batch, .. } if *at_batch >= at.batches)
    };
    apply_all_but(recipe, &operations, decides_again)
}

/// `recipe` with every operation in order, and the context stages open that were in a state to go on
/// from: stage i since `opened[i]` batches.
///
/// # Errors
/// As [`Operation::apply`].
pub fn plan_of_state(
    recipe: &RunConfig,
    operations: &[Operation],
    opened: &[u64],
) -> Result<RunConfig, TrainError> {
    let is_opening = |operation: &Operation| matches!(operation, Operation::ContextOpened { .. });
    let mut config = apply_all_but(recipe, operations, is_opening)?;
    for (index, stage) in config.context.iter_mut().enumerate() {
        stage.opened_at = opened.get(index).copied();
    }
    config.validate()?;
    Ok(config)
}

/// `recipe` with the operations in order, without those that are `left_out`.
fn apply_all_but(
    recipe: &RunConfig,
    operations: &[Operation],
    left_out: impl Fn(&Operation) -> bool,
) -> Result<RunConfig, TrainError> {
    let mut applied = operations.iter().filter(|operation| !left_out(operation));
    applied.try_fold(recipe.clone(), |config, operation| operation.apply(&config))
}

/// The openings of context stages that are in `plan`, and neither in `recipe` nor among `operations`.
pub fn lost_openings(
    recipe: &RunConfig,
    operations: &[Operation],
    plan: &RunConfig,
) -> Vec<Operation> {
    let openings = plan.context.iter().enumerate().map_while(|(stage, of_plan)| {
        let at_batch = of_plan.opened_at?;
        Some(Operation::ContextOpened { stage, at_batch })
    });
    let of_recipe = |opening: &Operation| {
        matches!(opening, Operation::ContextOpened { stage, at_batch }
            if recipe.context.get(*stage).is_some_and(|own| own.opened_at == Some(*at_batch)))
    };
    openings.filter(|opening| !operations.contains(opening) && !of_recipe(opening)).collect()
}

#[cfg(test)]
mod tests;
