//! How ranks share a run.

use std::time::Duration;

use fulmar_ep::transport::DEFAULT_DEADLINE;
use fulmar_ep::{DispatchConfig, Layout};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// What the ranks of a run are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankKind {
    /// Threads of one process.
    #[default]
    Threads,
    /// Processes that MPI started; the build needs the feature `mpi`.
    Mpi,
}

/// How ranks share the work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Copies of the model that share the batch.
    pub replicas: usize,
    /// Ranks that share the experts of a replica, and its rows.
    pub shards: usize,
    /// Neighbouring shards that share a row.
    pub context: usize,
    /// What ranks are.
    pub ranks: RankKind,
    /// How rows reach the experts of other shards.
    pub dispatch: DispatchConfig,
    /// Changes of `dispatch` in the course of the run, in the order of their steps.
    pub switches: Vec<DispatchSwitch>,
    /// Seconds that a rank waits for its peers before it gives up; a save or the building of a
    /// token store must fit in.
    pub deadline_secs: f64,
    /// Steps between comparisons of the weights of ranks that must have the same; 0 for never.
    pub compare_weights_every: u64,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self {
            replicas: 1,
            shards: 1,
            context: 1,
            ranks: RankKind::default(),
            dispatch: DispatchConfig::default(),
            switches: Vec::new(),
            deadline_secs: DEFAULT_DEADLINE.as_secs_f64(),
            compare_weights_every: 100,
        }
    }
}

/// Another exchange from one step on. The state of a run does not depend on the exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchSwitch {
    /// Completed updates after which the exchange is another.
    pub step: u64,
    /// The exchange from then on.
    pub dispatch: DispatchConfig,
}

impl ParallelConfig {
    /// The layout of the ranks.
    pub fn layout(&self) -> Layout {
        Layout { replicas: self.replicas, shards: self.shards, context: self.context }
    }

    /// The number of ranks.
    pub fn num_ranks(&self) -> u64 {
        self.layout().ranks() as u64
    }

    /// How long a rank waits for its peers.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.deadline_secs)
    }

    /// The exchange of the update after `step` completed ones.
    pub fn dispatch_at(&self, step: u64) -> &DispatchConfig {
        let switch = self.switches.iter().rev().find(|switch| switch.step <= step);
        switch.map_or(&self.dispatch, |switch| &switch.dispatch)
    }

    /// Checks every rule of the layout and the exchanges.
    ///
    /// # Errors
    /// The first broken rule, naming field, value and rule.
    pub fn validate(&self, num_experts: usize) -> Result<(), TrainError> {
        for (axis, size) in [("replicas", self.replicas), ("shards", self.shards)] {
            if size == 0 {
                return Err(TrainError::config(format!("parallel.{axis}"), 0, "at least 1"));
            }
        }
        if self.context != 1 {
            let rule = "1: rows are not split over ranks";
            return Err(TrainError::config("parallel.context", self.context, rule));
        }
        let seconds = self.deadline_secs;
        if !(seconds > 0.0 && seconds <= 1e9) {
            let rule = "seconds above 0 and at most 1e9";
            return Err(TrainError::config("parallel.deadline_secs", seconds, rule));
        }
        let check = |place: String, dispatch: &DispatchConfig| {
            dispatch
                .validate(num_experts, self.shards)
                .map_err(|source| TrainError::Dispatch { place, source: Box::new(source) })
        };
        check("parallel.dispatch".to_owned(), &self.dispatch)?;
        let mut last = None;
        for (index, switch) in self.switches.iter().enumerate() {
            if last >= Some(switch.step) {
                let rule = format!("above {}, the switch before", last.unwrap_or(0));
                let field = format!("parallel.switches[{index}].step");
                return Err(TrainError::config(field, switch.step, rule));
            }
            last = Some(switch.step);
            check(format!("parallel.switches[{index}].dispatch"), &switch.dispatch)?;
        }
        Ok(())
    }
}
