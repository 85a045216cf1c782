//! Checkpoints that are kept by a person's word, or because another run began with them.
//!
//! Each word is an object of its own, `pins/step-00000040-<n>-<random>.json`, never changed and never
//! removed, so that the target need not allow either. Of a step's pins the one with the highest `n`
//! counts; two writers that took the same number do not overwrite each other, and then whoever pins
//! prevails. That another run began with a checkpoint is never taken back.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::folders::{manifest_of, step_folders};
use super::step_name;
use crate::error::TrainError;
use crate::storage::Storage;

const FOLDER: &str = "pins";

/// A word on whether a checkpoint is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Whether it is kept from now on.
    pub pinned: bool,
    /// Whose word it is.
    pub kind: PinKind,
    /// Why, for people.
    pub reason: String,
    /// The run that began with the checkpoint, of a [`PinKind::Parent`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// Whose word a pin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// A person's, who may take it back.
    Pin,
    /// Of a run that began with the checkpoint; it stands for good.
    Parent,
}

impl Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "parent of run {run} ({})", self.reason),
            None => write!(f, "pinned ({})", self.reason),
        }
    }
}

/// Keeps the checkpoint of `step` until it is unpinned.
///
/// # Errors
/// [`TrainError::Checkpoint`] if there is no whole one, also if it was pruned meanwhile;
/// [`TrainError::Storage`].
pub fn pin(storage: &dyn Storage, step: u64, reason: &str) -> Result<(), TrainError> {
    let pin = Pin { pinned: true, kind: PinKind::Pin, reason: reason.to_owned(), run: None };
    keep(storage, step, &pin)
}

/// Keeps the checkpoint of `step` for good: `run` begins with it.
///
/// # Errors
/// As [`pin`].
pub fn pin_parent(
    storage: &dyn Storage,
    step: u64,
    run: &str,
    reason: &str,
) -> Result<(), TrainError> {
    let (reason, run) = (reason.to_owned(), Some(run.to_owned()));
    keep(storage, step, &Pin { pinned: true, kind: PinKind::Parent, reason, run })
}

/// Takes a pin back; the checkpoint is kept or pruned like any other from then on.
///
/// # Errors
/// [`TrainError::Checkpoint`] if the step is not pinned, or is the parent of a run;
/// [`TrainError::Storage`].
pub fn unpin(storage: &dyn Storage, step: u64, reason: &str) -> Result<(), TrainError> {
    let said = Said::read(storage)?;
    let standing = said.standing(step);
    if let Some(parent) = standing.iter().find(|pin| pin.kind == PinKind::Parent) {
        return Err(refuse(storage, step, format!("cannot be unpinned: it is the {parent}")));
    }
    if standing.is_empty() {
        return Err(refuse(storage, step, "is not pinned".to_owned()));
    }
    let pin = Pin { pinned: false, kind: PinKind::Pin, reason: reason.to_owned(), run: None };
    write(storage, step, said.next(step), &pin)
}

/// The pins that stand, by step. A pin that was cut short while it was written stands too, as one
/// that can be taken back.
///
/// # Errors
/// [`TrainError::Storage`] if they cannot be listed or read.
pub fn standing(storage: &dyn Storage) -> Result<BTreeMap<u64, Vec<Pin>>, TrainError> {
    let said = Said::read(storage)?;
    let steps = said.0.keys().map(|step| (*step, said.standing(*step)));
    Ok(steps.filter(|(_, pins)| !pins.is_empty()).collect())
}

/// The steps that are pinned.
pub(super) fn pinned_steps(storage: &dyn Storage) -> Result<BTreeSet<u64>, TrainError> {
    Ok(standing(storage)?.into_keys().collect())
}

/// All that was said, by step, in the order of numbers.
struct Said(BTreeMap<u64, Vec<(u64, Pin)>>);

impl Said {
    fn read(storage: &dyn Storage) -> Result<Self, TrainError> {
        let mut said: BTreeMap<u64, Vec<(u64, Pin)>> = BTreeMap::new();
        let objects = storage.list(FOLDER).map_err(TrainError::storage("list", storage, FOLDER))?;
        for object in objects {
            let Some((step, number)) = step_and_number(&object.name) else { continue };
            let text = storage.read_all(&object.name).map_err(TrainError::storage(
                "read",
                storage,
                &object.name,
            ))?;
            let pin = serde_json::from_slice(&text).unwrap_or_else(|error| Pin {
                pinned: true,
                kind: PinKind::Pin,
                reason: format!("{} cannot be read: {error}", object.name),
                run: None,
            });
            said.entry(step).or_default().push((number, pin));
        }
        Ok(Self(said))
    }

    /// What keeps a step: runs that began with it, then a person's pin.
    fn standing(&self, step: u64) -> Vec<Pin> {
        let said = self.0.get(&step).map_or(&[][..], Vec::as_slice);
        let of = |kind| said.iter().filter(move |(_, pin)| pin.kind == kind);
        let mut standing: Vec<Pin> = of(PinKind::Parent).map(|(_, pin)| pin.clone()).collect();
        let highest = of(PinKind::Pin).map(|(number, _)| *number).max();
        let last = of(PinKind::Pin).find(|(number, pin)| Some(*number) == highest && pin.pinned);
        standing.extend(last.map(|(_, pin)| pin.clone()));
        standing
    }

    /// The next free number of a step.
    fn next(&self, step: u64) -> u64 {
        let numbers = self.0.get(&step).into_iter().flatten().map(|(number, _)| *number);
        numbers.max().unwrap_or(0) + 1
    }
}

/// Writes a pin of a checkpoint that is there, and looks whether it still is.
fn keep(storage: &dyn Storage, step: u64, pin: &Pin) -> Result<(), TrainError> {
    require_whole(storage, step, "no whole checkpoint")?;
    write(storage, step, Said::read(storage)?.next(step), pin)?;
    require_whole(storage, step, "pruned while it was pinned")
}

fn require_whole(storage: &dyn Storage, step: u64, problem: &str) -> Result<(), TrainError> {
    let manifest = manifest_of(step);
    match storage.size(&manifest) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folders =
                step_folders(storage).map_err(TrainError::storage("list", storage, ""))?;
            let whole = folders.iter().filter(|folder| folder.has_manifest());
            let steps: Vec<String> = whole.map(|folder| folder.step.to_string()).collect();
            let there = if steps.is_empty() { "none".to_owned() } else { steps.join(", ") };
            Err(refuse(storage, step, format!("{problem}, needed one of the steps: {there}")))
        }
        Err(error) => Err(TrainError::storage("read", storage, &manifest)(error)),
    }
}

fn refuse(storage: &dyn Storage, step: u64, problem: String) -> TrainError {
    TrainError::checkpoint(Path::new(&storage.locate(&step_name(step))), problem)
}

fn write(storage: &dyn Storage, step: u64, number: u64, pin: &Pin) -> Result<(), TrainError> {
    // Two writers with the same number have different names.
    let random = RandomState::new().build_hasher().finish();
    let name = format!("{FOLDER}/{}-{number}-{random:016x}.json", step_name(step));
    let text = serde_json::to_vec_pretty(pin).expect("plain values");
    storage.write_all(&name, &text).map_err(TrainError::storage("write", storage, &name))
}

/// Step and number in the name of a pin.
fn step_and_number(name: &str) -> Option<(u64, u64)> {
    let stem = name.strip_prefix("pins/step-")?.strip_suffix(".json")?;
    let mut parts = stem.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
