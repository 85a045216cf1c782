//! A run that starts from a saved state of another: a cooldown ahead of the run's own.

use std::path::Path;

use super::Position;
use crate::checkpoint::pins::pin_parent;
use crate::config::{Parent, RunConfig};
use crate::error::TrainError;
use crate::guard;
use crate::optim::Replan;
use crate::recipe;

/// The recipe of a branch named `name` that starts from the state at `at` of the run in `folder`,
/// whose plan in force is `config`, and ends after `steps` updates in all.
///
/// The rate goes on from where it stands and falls in a line to its final share at the branch's own
/// horizon. The run that it branches off from is not touched.
///
/// # Errors
/// If the horizon lies in the past, or the state before the end of warm-up; if the run's history cannot
/// be read.
pub fn branch(
    config: &RunConfig,
    folder: &Path,
    at: Position,
    name: &str,
    steps: u64,
) -> Result<RunConfig, TrainError> {
    if steps <= at.step {
        let rule = format!("above {}, the step that the branch starts from", at.step);
        return Err(TrainError::config("--steps", steps, rule));
    }
    let mut config = config.clone();
    config.name = name.to_owned();
    // What the run has learned to leave out, and how many of its steps were skipped.
    let mut left_out = guard::batches_left_out(folder)?;
    left_out.extend(&config.guard.skip_batches);
    config.guard.skip_batches = left_out.into_iter().collect();
    config.data.longest_row.get_or_insert(config.longest_row());
    config.schedule.replans.retain(|replan| replan.from < at.step);
    config.schedule.replans.push(Replan { from: at.step, steps });
    let target = config.checkpoint.target.take();
    // Below the parent's, where no reader of it looks.
    config.checkpoint.target =
        target.as_ref().map(|target| format!("{}/{name}", target.trim_end_matches('/')));
    config.parent = Some(Parent { run: folder.to_owned(), step: at.step, target });
    // A branch is none of the runs that were planned.
    config.experiment = None;
    config.validate()?;
    Ok(config)
}

/// Makes the folder of a branch: its recipe, and a pin on the state that it starts from, so that
/// this is never pruned.
///
/// # Errors
/// If the folder holds anything already, or something cannot be written.
pub fn found_branch(config: &RunConfig, folder: &Path, reason: &str) -> Result<(), TrainError> {
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let path = folder.display().to_string();
        return Err(TrainError::config("--branch", path, "a folder that is empty or not there"));
    }
    if let Some(parent) = &config.parent {
        let storage = parent.storage(config)?;
        pin_parent(&*storage, parent.step, &folder.display().to_string(), reason)?;
    }
    std::fs::create_dir_all(folder).map_err(TrainError::io("create", folder))?;
    let file = folder.join("recipe.toml");
    std::fs::write(&file, recipe::to_toml(config)).map_err(TrainError::io("write", &file))
}
