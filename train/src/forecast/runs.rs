//! Rungs from the folders of runs.

use std::path::Path;

use fulmar_eval::forecast::{Ladder, NUM_POINTS};

use super::RungsError;
use super::compare::{Side, require_alike};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::past_run::PastRun;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::names;
use crate::telemetry::stitch::Curve;

/// The loss that a forecast is of unless another is asked for: the mean over the domains of the shipped
/// held-out text, nothing dropped.
pub const DEFAULT_METRIC: &str = names::HELDOUT_LOSS;

/// A rung as its folder tells it.
#[derive(Debug, Clone)]
pub struct RungRun {
    /// The run.
    pub run: PastRun,
    /// Completed updates.
    pub completed: u64,
    /// Losses at 5%, 10%, ... of the horizon in force, as far as the run has come.
    pub losses: Vec<f64>,
    /// Training loss, gradient norm and share of dropped assignments by step.
    pub(super) curves: [Curve; 3],
    /// blake3 of the log as it was read.
    pub log_digest: String,
    /// What a reader should know of the log, for people; most often nothing.
    pub notes: Vec<String>,
    pub(super) side: Side,
}

impl RungRun {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.run.config.name
    }

    /// Updates of the whole run.
    pub fn steps(&self) -> u64 {
        self.run.config.schedule.horizon()
    }

    /// FLOPs of the whole run, without the output head.
    pub fn flops(&self) -> f64 {
        flops(&self.run.config)
    }
}

/// FLOPs of a whole run, without the output head.
pub(crate) fn flops(config: &RunConfig) -> f64 {
    let per_step = config.model.step_flops_without_head(config.tokens_per_step());
    per_step * config.schedule.horizon() as f64
}

/// Completed updates at point `point`, from 0, of a run of `horizon`: the first by which its share of
/// the run is done.
pub fn point_step(point: usize, horizon: u64) -> u64 {
    let reached = (point as u128 + 1) * u128::from(horizon);
    reached.div_ceil(NUM_POINTS as u128) as u64
}

/// The rung in the folder of a run, with the losses that its log has of `metric`.
///
/// A run that still goes on, or was stopped, has as many points as it has come to. Of several attempts
/// the newest that passed a step counts, and it is said.
///
/// # Errors
/// A folder that holds no run; a log without steps, with a gap, with a value that is not a number or
/// doubled by one attempt; no evaluation, or one that is missing at a point that the run has passed;
/// rows that grow.
pub fn read_rung(folder: &Path, metric: &str) -> Result<RungRun, TrainError> {
    let log = folder.join(LOG_FILE);
    let digest = || -> std::io::Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(std::fs::File::open(&log)?)?;
        Ok(hasher.finalize().to_hex().to_string())
    };
    let run = PastRun::open(folder)?;
    let name = run.config.name.clone();
    let wanted = [names::LOSS, names::GRAD_NORM, names::DROP_FRACTION, metric];
    let mut curves = run.curves(&wanted)?;
    let evaluations = curves.pop().expect("one for each metric");
    let curves: [Curve; 3] = curves.try_into().expect("one for each metric");
    let Some(completed) = curves[0].points.last_key_value().map(|(step, _)| *step) else {
        return Err(RungsError::NoSteps { rung: name, folder: folder.to_owned() }.into());
    };
    one_row_length(&run.config)?;
    for (curve, metric) in curves.iter().zip(wanted) {
        require_whole(&name, metric, curve, completed)?;
    }
    require_sound(&name, metric, &evaluations)?;
    let losses = losses(&run.config, metric, &evaluations, completed)?;
    let notes = notes(&run, &curves[0], completed);
    let log_digest = digest().map_err(TrainError::io("read", &log))?;
    let side = Side::of_run(&run, metric)?;
    Ok(RungRun { run, completed, losses, curves, log_digest, notes, side })
}

/// Fails if the rows of a plan grow: FLOPs spent would not be proportional to steps.
pub(super) fn one_row_length(config: &RunConfig) -> Result<(), RungsError> {
    match config.context.first() {
        None => Ok(()),
        Some(stage) => {
            Err(RungsError::Context { rung: config.name.clone(), seq_len: stage.seq_len })
        }
    }
}

/// Fails unless a metric of each step is there for each until `completed`, and a number.
fn require_whole(
    rung: &str,
    metric: &str,
    curve: &Curve,
    completed: u64,
) -> Result<(), RungsError> {
    let missing = (1..=completed).filter(|step| !curve.points.contains_key(step));
    if let Some(first) = missing.clone().next() {
        let (rung, metric, gaps) = (rung.to_owned(), metric.to_owned(), missing.count() as u64);
        return Err(RungsError::Gap { rung, metric, gaps, first, completed });
    }
    require_sound(rung, metric, curve)
}

/// Fails with the first value that is not a number, and with values of one attempt for one step.
fn require_sound(rung: &str, metric: &str, curve: &Curve) -> Result<(), RungsError> {
    let (rung, metric) = (rung.to_owned(), metric.to_owned());
    if let Some((step, found)) = curve.points.iter().find(|(_, value)| !value.is_finite()) {
        return Err(RungsError::NotFinite { rung, metric, step: *step, found: *found });
    }
    match curve.doubles {
        0 => Ok(()),
        doubles => Err(RungsError::Doubled { rung, metric, doubles }),
    }
}

/// The losses at the points that the run has come to.
fn losses(
    config: &RunConfig,
    metric: &str,
    evaluations: &Curve,
    completed: u64,
) -> Result<Vec<f64>, RungsError> {
    let (rung, metric) = (config.name.clone(), metric.to_owned());
    if evaluations.points.is_empty() {
        return Err(RungsError::NoEvaluation { rung, metric });
    }
    let horizon = config.schedule.horizon();
    let steps = (0..NUM_POINTS).map(|point| (5 * (point + 1), point_step(point, horizon)));
    // The newest step's own evaluation may be under way.
    let newest = evaluations.points.last_key_value().map_or(0, |(step, _)| *step);
    let passed = steps.filter(|(_, step)| *step < completed || *step <= newest.min(completed));
    let (found, missing): (Vec<_>, Vec<_>) = passed
        .map(|(progress, step)| (progress, step, evaluations.points.get(&step)))
        .partition(|(_, _, loss)| loss.is_some());
    if missing.is_empty() {
        return Ok(found.into_iter().filter_map(|(_, _, loss)| loss.copied()).collect());
    }
    let missing =
        missing.iter().map(|(progress, step, _)| format!("was at {progress}% (step {step})"));
    let missing = missing.collect::<Vec<_>>().join(", ");
    Err(RungsError::PointsMissing { rung, metric, completed, missing })
}

fn notes(run: &PastRun, training: &Curve, completed: u64) -> Vec<String> {
    let (name, horizon) = (&run.config.name, run.config.schedule.horizon());
    let mut notes = Vec::new();
    let attempts = run.starts().count();
    if training.superseded > 0 || attempts > 1 {
        notes.push(format!(
            "{name}: {attempts} attempts, {} steps made again; of each step the newest counts",
            training.superseded
        ));
    }
    if training.cut_short > 0 {
        notes.push(format!("{name}: {} lines of the log were cut short", training.cut_short));
    }
    if training.skipped > 0 {
        notes.push(format!("{name}: {} steps were skipped, not finite", training.skipped));
    }
    if completed < horizon {
        notes.push(format!("{name}: at step {completed} of {horizon}, stopped early or going on"));
    }
    notes
}

/// The table of a ladder of runs, and of the run to be forecast, which has no losses in it.
///
/// # Errors
/// If two runs have one name, or differ in what a ladder may not vary.
pub fn ladder_of(
    rungs: &[RungRun],
    target: &RunConfig,
    metric: &str,
) -> Result<Ladder, TrainError> {
    for (index, rung) in rungs.iter().enumerate() {
        let same = |other: &&RungRun| other.name() == rung.name();
        if let Some(first) = rungs[..index].iter().find(same) {
            return Err(TrainError::from(RungsError::SameName {
                rung: rung.name().to_owned(),
                first: first.run.folder.clone(),
                second: rung.run.folder.clone(),
            }));
        }
    }
    if let Some(rung) = rungs.iter().find(|rung| rung.name() == target.name) {
        return Err(TrainError::config(
            "--target",
            format!("`{}`, the run in {}", target.name, rung.run.folder.display()),
            "a recipe that is not among the rungs",
        ));
    }
    one_row_length(target)?;
    let sides: Vec<&Side> = rungs.iter().map(|rung| &rung.side).collect();
    require_alike(&sides)?;
    if let Some(first) = sides.first() {
        require_alike(&[first, &Side::of_recipe(target, metric)])?;
    }
    let all = rungs.iter().map(|rung| (rung.name().to_owned(), rung.flops()));
    Ok(Ladder {
        metric: metric.to_owned(),
        source: "logs of runs".to_owned(),
        flops_without_head: all.chain([(target.name.clone(), flops(target))]).collect(),
        values: rungs.iter().map(|rung| (rung.name().to_owned(), rung.losses.clone())).collect(),
    })
}
