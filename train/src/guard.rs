//! What a run does when a step is not sound: the recipe's `[guard]`.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::history::{Event, History};

/// The event of a batch that was left out on request.
pub(crate) const LEFT_OUT: &str = "batch_left_out";

/// What happens to a step whose loss or gradient norm is not finite. It updates nothing either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNotFinite {
    /// Its batch is left out, as often as `guard.max_skipped_steps` allows.
    #[default]
    Skip,
    /// It ends the run.
    Stop,
}

/// What happens when a step is not finite, slow, or does not end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// What a step that is not finite leads to: `skip` or `stop`.
    pub on_not_finite: OnNotFinite,
    /// Steps that may be skipped in a run before it stops, over all its attempts.
    pub max_skipped_steps: u64,
    /// Batches, counted from 0 over the whole run, that are left out unread. The history of a run
    /// remembers them: a resumed run need not be told again.
    pub skip_batches: Vec<u64>,
    /// A step that takes so many times the median of the last 20 is slow; 0 for never. The same
    /// holds for evaluations among evaluations, and for saves among saves.
    pub slow_factor: f64,
    /// Seconds that it must take at least to be called slow.
    pub slow_secs: f64,
    /// Seconds without a sign of progress from any rank of a process after which the process ends;
    /// 0 for never; a save, the building of a token store and the samples at the end must fit in.
    /// Twice `parallel.deadline_secs` and at least 60 when absent: who waits for a peer gives up
    /// before, and knows more.
    pub stuck_secs: Option<f64>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            on_not_finite: OnNotFinite::default(),
            max_skipped_steps: 3,
            skip_batches: Vec::new(),
            slow_factor: 5.0,
            slow_secs: 5.0,
            stuck_secs: None,
        }
    }
}

/// The batches that the run in `folder` has left out on request.
///
/// # Errors
/// If its history cannot be read.
pub(crate) fn batches_left_out(folder: &Path) -> Result<BTreeSet<u64>, TrainError> {
    Ok(left_out_of(&History::read(folder)?).collect())
}

/// The batches that were left out, of a run with these events.
pub(crate) fn left_out_of(events: &[Event]) -> impl Iterator<Item = u64> {
    events.iter().filter(|event| event.what == LEFT_OUT).filter_map(batch_of)
}

/// The batch that an event is about.
pub(crate) fn batch_of(event: &Event) -> Option<u64> {
    event.detail.get("batch")?.as_u64()
}

impl GuardConfig {
    /// Checks each value.
    ///
    /// # Errors
    /// [`TrainError::Config`] with field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        let limits = [
            ("guard.slow_factor", self.slow_factor),
            ("guard.slow_secs", self.slow_secs),
            ("guard.stuck_secs", self.stuck_secs.unwrap_or(0.0)),
        ];
        for (field, value) in limits {
            if !(0.0..=1e9).contains(&value) {
                return Err(TrainError::config(field, value, "at least 0 and at most 1e9"));
            }
        }
        Ok(())
    }
}
