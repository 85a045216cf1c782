//! Whether a run does again what it did: a stretch of it, trained once more from the checkpoint
//! before and compared with its record.
//!
//! Rows, rates, losses, gradient norms and counts are compared step by step, and at the end the
//! digests of all weights and of the whole state with those of the checkpoint that the run saved
//! there. The stretch is trained at the layout and by the exchange with which that checkpoint was made,
//! so every figure must have the same bits.

mod report;

pub use report::{Difference, Proof};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::checkpoint::{Manifest, Tensors, candidates};
use crate::config::{EvaluationConfig, Parent, RunConfig};
use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::guard;
use crate::operations::{self, Position};
use crate::recipe;
use crate::run::{RunOptions, run};
use crate::stop_signal::StopSignal;
use crate::storage::{Storage, open_storage};
use crate::telemetry::memory::human;
use crate::telemetry::{Metrics, names, stitch};

/// What of a run is proved.
#[derive(Debug, Clone)]
pub struct ProveOptions {
    /// Folder of the run.
    pub run: PathBuf,
    /// Steps to train again at least; those since the checkpoint before the last when absent.
    pub steps: Option<u64>,
    /// The checkpoint at whose step the stretch ends; the newest when absent.
    pub until: Option<u64>,
    /// The device.
    pub device: DeviceChoice,
}

/// Trains a stretch of the run again, in a folder of its own below it (`proofs/`), and compares.
///
/// # Errors
/// If the run has no two whole checkpoints that far apart, or the stretch cannot be trained. That it
/// differs is no error here: [`Proof::verdict`] says so.
pub fn prove(options: &ProveOptions) -> Result<Proof, TrainError> {
    let folder = &options.run;
    let first = recipe::load(&folder.join("recipe.toml"), &[])?;
    let storage = open_storage(&first, folder)?;
    let (from, until) = ends(&*storage, options)?;
    println!(
        "proving steps {} to {} of {}: {} of state to begin with",
        from.step + 1,
        until.step,
        folder.display(),
        human(from.num_bytes()),
    );
    let place = fresh_folder(folder, from.step, until.step)?;
    let plan = RunConfig {
        parallel: Tensors::new(storage, until.clone()).recipe()?.parallel,
        ..plan_of_stretch(&first, folder, from.position(), &place)?
    };
    let stretch = RunOptions {
        out: place.clone(),
        device: options.device,
        resume: false,
        stop_after: Some(until.step),
        samples: false,
        stop: StopSignal::default(),
        storage: None,
    };
    let ended = run(&plan, &stretch)?;
    if ended.state.step != until.step {
        let problem = format!("ended at step {}, needed {}", ended.state.step, until.step);
        return Err(TrainError::checkpoint(&place, problem));
    }
    let again = Manifest::read(&*open_storage(&plan, &place)?, until.step)?;
    let steps = from.step + 1..=until.step;
    let recorded = stitch::updates_of_run(folder, steps.clone())?;
    let done = stitch::updates_of_run(&place, steps)?;
    let proof =
        Proof::new(place, (&from, &until, &again), compare(&from, &until, &recorded, &done));
    proof.write()?;
    Ok(proof)
}

/// The checkpoints at which the stretch begins and ends.
fn ends(storage: &dyn Storage, options: &ProveOptions) -> Result<(Manifest, Manifest), TrainError> {
    let whole = candidates(storage)?.filter_map(|found| found.manifest.ok());
    let mut newest_first: Vec<Manifest> = whole.map(|(manifest, _)| manifest).collect();
    let missing = |what: String| TrainError::Checkpoint {
        path: storage.locate("").into(),
        problem: format!("no whole checkpoint {what}"),
    };
    let end = match options.until {
        None => 0,
        Some(step) => newest_first
            .iter()
            .position(|manifest| manifest.step == step)
            .ok_or_else(|| missing(format!("of step {step}")))?,
    };
    if newest_first.len() <= end {
        return Err(missing("at all".to_owned()));
    }
    let mut rest = newest_first.split_off(end + 1).into_iter();
    let until = newest_first.pop().expect("found above");
    let latest = until.step.saturating_sub(options.steps.unwrap_or(1).max(1));
    let from = rest.find(|manifest| manifest.step <= latest);
    let from = from.ok_or_else(|| missing(format!("at or before step {latest} to begin with")))?;
    Ok((from, until))
}

/// `proofs/<from>-<until>`, with a number behind it if there is one already.
fn fresh_folder(run: &Path, from: u64, until: u64) -> Result<PathBuf, TrainError> {
    let proofs = run.join("proofs");
    let name = |n: u64| match n {
        1 => format!("{from}-{until}"),
        n => format!("{from}-{until}-{n}"),
    };
    let free = (1..).map(name).map(|name| proofs.join(name)).find(|path| !path.exists());
    let path = free.expect("numbers do not end");
    std::fs::create_dir_all(&path).map_err(TrainError::io("create", &path))?;
    Ok(path)
}

/// The plan in force at `at`, as a branch of the run that leaves its traces in `place` and evaluates
/// at its end alone. It leaves out the batches that the run did, whoever named them.
fn plan_of_stretch(
    first: &RunConfig,
    folder: &Path,
    at: Position,
    place: &Path,
) -> Result<RunConfig, TrainError> {
    let mut plan = operations::plan_in_force(first, folder, at)?;
    let run = std::path::absolute(folder).map_err(TrainError::io("find", folder))?;
    let target = plan.checkpoint.target.take();
    plan.guard.skip_batches = guard::batches_left_out(folder)?.into_iter().collect();
    plan.parent = Some(Parent { run, step: at.step, target });
    plan.name = place.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    plan.checkpoint = crate::config::CheckpointConfig::default();
    // What is trained again is evidence of the run, and neither of its experiment nor its forecast.
    (plan.experiment, plan.forecast) = (None, None);
    let bare = EvaluationConfig { bigram: false, max_rows: 1, ..EvaluationConfig::default() };
    plan.evaluation = EvaluationConfig { batch_rows: plan.evaluation.batch_rows, ..bare };
    plan.log.tensorboard = false;
    Ok(plan)
}

/// What is compared of each step.
struct Compared {
    missing: Vec<u64>,
    figures: BTreeMap<String, u64>,
    differences: Vec<Difference>,
}

/// Every figure of every step that both have and that does not tell of time or of the process.
fn compare(
    from: &Manifest,
    until: &Manifest,
    recorded: &BTreeMap<u64, Metrics>,
    done: &BTreeMap<u64, Metrics>,
) -> Compared {
    let (missing, differences) = (Vec::new(), Vec::new());
    let mut compared = Compared { missing, figures: BTreeMap::new(), differences };
    for step in from.step + 1..=until.step {
        let (Some(recorded), Some(done)) = (recorded.get(&step), done.get(&step)) else {
            compared.missing.push(step);
            continue;
        };
        for (figure, value) in recorded.iter().filter(|(figure, _)| is_exact(figure)) {
            let Some(again) = done.get(figure) else { continue };
            *compared.figures.entry(figure.clone()).or_default() += 1;
            if value != again {
                let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
                compared.differences.push(Difference {
                    step,
                    figure: figure.clone(),
                    recorded: text(value),
                    again: text(again),
                });
            }
        }
    }
    compared
}

/// Whether a figure is a function of plan, data and state.
fn is_exact(figure: &str) -> bool {
    let varies = ["throughput/", "memory/", "alarm/"];
    figure != names::ATTEMPT && !varies.iter().any(|prefix| figure.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_not_compared() {
        assert!(is_exact(names::LOSS) && is_exact("data/digest") && is_exact("grad/norm/total"));
        assert!(!is_exact(names::DURATION) && !is_exact("attempt") && !is_exact("alarm/loss"));
    }
}
