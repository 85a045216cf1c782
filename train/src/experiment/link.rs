//! The tie of a run to an experiment: the recipe's field `experiment`.

use std::path::Path;

use serde_json::Value;

use super::conclusion::CONCLUSION_FILE;
use super::protocol::Protocol;
use super::seal::{Seal, recipe_file};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::{History, STARTED};
use crate::operations::first_difference;
use crate::recipe;

/// Field of a `started` event: digest of the seal.
pub const SEAL_DIGEST: &str = "experiment_seal";
/// Field of a `started` event: the experiment's folder.
pub const FOLDER: &str = "experiment";

/// Parts of a recipe that change no bit of what a run computes.
const FREE: [&str; 5] = ["experiment", "checkpoint", "log", "alarms", "memory"];

/// The seal that a run of `config` is tied to, if it is tied to one and the seal holds.
///
/// # Errors
/// As [`Seal::checked`].
pub fn seal_of(config: &RunConfig) -> Result<Option<Seal>, TrainError> {
    config.experiment.as_deref().map(Seal::checked).transpose()
}

/// Whether a run of `config` may start in `out`: it is as planned, the experiment is open, and earlier
/// starts had the same seal.
///
/// # Errors
/// What is not so.
pub(crate) fn check_start(config: &RunConfig, out: &Path) -> Result<(), TrainError> {
    let Some(folder) = &config.experiment else { return Ok(()) };
    let seal = Seal::checked(folder)?;
    if folder.join(CONCLUSION_FILE).exists() {
        return Err(TrainError::experiment(folder, "it is closed; nothing is run in it any more"));
    }
    as_planned(config, folder)?;
    for start in History::read(out)?.iter().filter(|event| event.what == STARTED) {
        let found = start.detail.get(SEAL_DIGEST).and_then(Value::as_str);
        if found != Some(&seal.digest) {
            let problem = format!(
                "attempt {} of {} has the seal {}, this one has {}",
                start.attempt,
                out.display(),
                found.unwrap_or("of no experiment"),
                seal.digest
            );
            return Err(TrainError::experiment(folder, problem));
        }
    }
    Ok(())
}

/// Whether `config` is what the experiment in `folder` has for a run of that name, but for where it
/// leaves its traces and what it computes again.
pub(super) fn as_planned(config: &RunConfig, folder: &Path) -> Result<(), TrainError> {
    let name = &config.name;
    let protocol = Protocol::read(folder)?;
    if protocol.run(name).is_none() {
        let names: Vec<&str> = protocol.runs.iter().map(|run| run.name.as_str()).collect();
        let problem = format!("no run `{name}` is planned, but {}", names.join(", "));
        return Err(TrainError::experiment(folder, problem));
    }
    let file = folder.join(recipe_file(name));
    let planned = recipe::load(&file, &[])?;
    let difference = first_difference("", &what_counts(&planned), &what_counts(config));
    difference.map_or(Ok(()), |(field, planned, found)| {
        let problem = format!("field `{field}` is {planned} there and {found} in the run");
        Err(TrainError::experiment(&file, problem))
    })
}

/// The recipe without what is free.
fn what_counts(config: &RunConfig) -> Value {
    let mut value = serde_json::to_value(config).expect("a config of plain values");
    let remove = |value: &mut Value, fields: &[&str]| {
        if let Some(object) = value.as_object_mut() {
            fields.iter().for_each(|field| drop(object.remove(*field)));
        }
    };
    remove(&mut value, &FREE);
    remove(&mut value["data"], &["cache", "read_ahead"]);
    remove(&mut value["parallel"], &["ranks", "deadline_secs", "compare_weights_every"]);
    value
}
