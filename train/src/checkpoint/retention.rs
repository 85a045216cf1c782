//! What is kept and what goes.
//!
//! Everything is decided by steps, nothing by a clock. A checkpoint goes only when a newer one has
//! been verified, and its manifest goes first: whatever ends pruning half-way leaves no folder that
//! a reader would take for a checkpoint. A place that denies removing keeps everything, and the run
//! goes on.

use std::collections::BTreeSet;

use super::folders::{StepFolder, manifest_of, step_folders};
use super::pins;
use crate::config::CheckpointConfig;
use crate::error::TrainError;
use crate::history::Event;
use crate::storage::Storage;

/// After so many folders that could not be removed the rest is left for the next time.
const MAX_PROBLEMS: usize = 3;

/// The steps whose folders may go, in their order, once the checkpoint of `verified` is known to be
/// whole: of `whole` ones, those that are neither among the newest `keep_last` nor permanent nor
/// `pinned`; of `debris`, which never became checkpoints, those that are older than `verified`.
///
/// The newest are counted without permanent and pinned ones. What is newer than `verified` neither
/// goes nor counts, and nothing goes if `verified` is not among `whole` or `keep_last` is 0.
pub fn to_prune(
    whole: &[u64],
    debris: &[u64],
    config: &CheckpointConfig,
    pinned: &BTreeSet<u64>,
    verified: u64,
) -> Vec<u64> {
    if config.keep_last == 0 || !whole.contains(&verified) {
        return Vec::new();
    }
    let permanent =
        |step: &u64| config.permanent_every > 0 && step.is_multiple_of(config.permanent_every);
    let mut rolling: Vec<u64> = whole.to_vec();
    rolling.retain(|step| *step <= verified && !permanent(step) && !pinned.contains(step));
    rolling.sort_unstable();
    let kept = usize::try_from(config.keep_last).unwrap_or(usize::MAX).min(rolling.len());
    rolling.truncate(rolling.len() - kept);
    rolling.extend(debris.iter().filter(|step| **step < verified && !pinned.contains(step)));
    // The one that was verified stays whatever the rest says.
    rolling.retain(|step| *step != verified);
    rolling.sort_unstable();
    rolling
}

/// What pruning did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Steps whose folders are gone.
    pub steps: Vec<u64>,
    /// Bytes that they had.
    pub bytes: u64,
    /// What could not be done, each with its cause; it is tried again the next time.
    pub problems: Vec<String>,
}

impl Pruned {
    /// What happened as an event of a run; none if nothing did.
    pub fn event(&self, step: u64, attempt: u64) -> Option<Event> {
        if self.steps.is_empty() && self.problems.is_empty() {
            return None;
        }
        let what = if self.problems.is_empty() { "pruned" } else { "prune_failed" };
        let mut text = Vec::new();
        if !self.steps.is_empty() {
            let steps: Vec<String> = self.steps.iter().map(u64::to_string).collect();
            text.push(format!("pruned the checkpoints of steps {}", steps.join(", ")));
        }
        text.extend(self.problems.iter().cloned());
        let event = Event::now(step, attempt, what, text.join("; "));
        Some(event.with("steps", self.steps.clone()).with("bytes", self.bytes))
    }
}

/// Removes from `storage` what [`to_prune`] says, once the checkpoint of `verified` is known to be
/// whole. One rank calls it. Nothing that goes wrong is an error; it is in the report.
pub fn prune(storage: &dyn Storage, config: &CheckpointConfig, verified: u64) -> Pruned {
    let mut pruned = Pruned::default();
    if config.keep_last == 0 {
        return pruned;
    }
    if let Err(error) = prune_into(&mut pruned, storage, config, verified) {
        pruned.problems.push(format!("nothing more is pruned: {}", error.chain()));
    }
    pruned
}

fn prune_into(
    pruned: &mut Pruned,
    storage: &dyn Storage,
    config: &CheckpointConfig,
    verified: u64,
) -> Result<(), TrainError> {
    let folders = step_folders(storage).map_err(TrainError::storage("list", storage, ""))?;
    let steps = |whole: bool| -> Vec<u64> {
        let folders = folders.iter().filter(|folder| folder.has_manifest() == whole);
        folders.map(|folder| folder.step).collect()
    };
    let (whole, debris) = (steps(true), steps(false));
    let pinned = pins::pinned_steps(storage)?;
    let going = to_prune(&whole, &debris, config, &pinned, verified);
    for folder in folders.iter().filter(|folder| going.contains(&folder.step)) {
        // Somebody may have pinned it since.
        if pins::pinned_steps(storage)?.contains(&folder.step) {
            continue;
        }
        match remove(storage, folder) {
            Ok(()) => {
                pruned.steps.push(folder.step);
                pruned.bytes += folder.bytes();
            }
            Err(error) => {
                pruned.problems.push(error.chain());
                if pruned.problems.len() == MAX_PROBLEMS {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Removes a folder, its manifest first; where that is denied, nothing else.
fn remove(storage: &dyn Storage, folder: &StepFolder) -> Result<(), TrainError> {
    let manifest = manifest_of(folder.step);
    let mut names: Vec<&str> = folder.objects.iter().map(|object| &*object.name).collect();
    names.sort_by_key(|name| *name != manifest);
    for name in names {
        match storage.remove(name) {
            // Somebody else was faster, or it was removed before an answer got lost.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.map_err(TrainError::storage("remove", storage, name))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
