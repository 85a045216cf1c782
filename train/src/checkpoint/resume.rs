//! The state that a run begins or goes on with: one rank decides from which checkpoint, all confirm.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use fulmar_ep::World;

use super::load::{Restored, restore};
use super::manifest::{Manifest, Unusable};
use super::newest::{Found, newest};
use super::save::Run;
use super::step_name;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::History;
use crate::operations::Position;
use crate::state::TrainState;

/// What a run begins or goes on with.
#[derive(Debug)]
pub struct Resumed {
    /// The state.
    pub state: TrainState,
    /// The plan in force at that state.
    pub plan: RunConfig,
    /// The checkpoint that it is from; none at the start of a run.
    pub from: Option<Manifest>,
    /// What was passed over and why, newest first; of the first rank.
    pub passed_over: Vec<String>,
}

/// The plan in force at a position, and the rows taken from each cell until then. What a checkpoint
/// knows of the plan comes with it: the batches after which its context stages opened. The record of
/// an opening may be lost, by a full disk and a kill, and the state that was trained behind it is not.
pub type PlanAt<'a> =
    dyn Fn(Position, &[u64]) -> Result<(RunConfig, BTreeMap<String, u64>), TrainError> + 'a;

/// The newest state that is whole, and the checkpoint it is from; if nothing was ever saved, the
/// state of the parent that the run branches off from, or else the first state of the run. What is
/// passed over is said with its reason by the first rank.
///
/// `folder` is the run's, whose history tells whether it has saved.
///
/// # Errors
/// [`TrainError::NoneWhole`] if the run has saved and no checkpoint is whole. If the newest is not of
/// this run, or the parent's is not there or not whole. If a peer is lost, or sees another
/// checkpoint.
pub fn resume(
    run: &Run<'_>,
    plan_at: &PlanAt<'_>,
    folder: &Path,
    world: &World,
    device: &Device,
) -> Result<Resumed, TrainError> {
    let mut passed = Passed::default();
    let mut before = None;
    loop {
        let found = world.is_first().then(|| newest(&**run.storage, before)).transpose()?;
        let Some(manifest) = choose(run, found, &mut passed, world)? else {
            return begin(run, plan_at, folder, passed, world, device);
        };
        match take(run, &manifest, plan_at, world, device)? {
            Ok(resumed) => return Ok(Resumed { passed_over: passed.reasons, ..resumed }),
            Err(reason) => {
                before = Some(manifest.step);
                passed.damaged = true;
                if world.is_first() {
                    passed.over(&reason);
                }
            }
        }
    }
}

/// The state of a checkpoint, or what of it is damaged.
fn take(
    run: &Run<'_>,
    manifest: &Manifest,
    plan_at: &PlanAt<'_>,
    world: &World,
    device: &Device,
) -> Result<Result<Resumed, TrainError>, TrainError> {
    let (plan, consumed) = plan_at(manifest.position(), &manifest.opened)?;
    let mut state = TrainState::new(&plan, world, device)?;
    let run = Run { consumed, config: &plan, ..run.clone() };
    match restore(manifest, &run, world, device, &mut state)? {
        Restored::Whole(census) => {
            if world.is_first() {
                let (place, step) = (run.storage.locate(&step_name(state.step)), state.step);
                println!("resumed from {place} (step {step}): {census}");
            }
            let from = Some(manifest.clone());
            Ok(Ok(Resumed { state, plan, from, passed_over: Vec::new() }))
        }
        Restored::Damaged(reason) => Ok(Err(reason)),
    }
}

/// The state that a run without a checkpoint of its own begins with.
fn begin(
    run: &Run<'_>,
    plan_at: &PlanAt<'_>,
    folder: &Path,
    passed: Passed,
    world: &World,
    device: &Device,
) -> Result<Resumed, TrainError> {
    if world.is_first() {
        passed.nothing_is_lost(run, folder)?;
    }
    if let Some(parent) = &run.config.parent {
        let storage = parent.storage(run.config)?;
        let of_parent = Run { storage: &storage, ..run.clone() };
        let found = world.is_first().then(|| newest(&*storage, Some(parent.step + 1)));
        let found = found.transpose()?;
        let place = storage.locate(&step_name(parent.step));
        let missing = || TrainError::Checkpoint {
            path: place.into(),
            problem: "not there or not whole, and the run is to begin with it".to_owned(),
        };
        let manifest = choose(&of_parent, found, &mut Passed::default(), world)?;
        let manifest = manifest.filter(|manifest| manifest.step == parent.step);
        let manifest = manifest.ok_or_else(missing)?;
        return take(&of_parent, &manifest, plan_at, world, device)?;
    }
    let (plan, _) = plan_at(Position::default(), &[])?;
    let state = TrainState::new(&plan, world, device)?;
    Ok(Resumed { state, plan, from: None, passed_over: passed.reasons })
}

/// What the first rank has passed over.
#[derive(Debug, Default)]
struct Passed {
    reasons: Vec<String>,
    /// Whether any of it was whole once.
    damaged: bool,
}

impl Passed {
    fn over(&mut self, reason: &TrainError) {
        println!("passed over: {reason}");
        self.reasons.push(reason.to_string());
    }

    /// Fails if there was a state to go on with: it must not be lost without a word.
    fn nothing_is_lost(&self, run: &Run<'_>, folder: &Path) -> Result<(), TrainError> {
        let events = History::read(folder)?;
        let saved = events.iter().any(|event| ["saved", "imported"].contains(&&event.what[..]));
        let place = run.storage.locate("");
        if self.damaged || saved {
            let mut reasons = self.reasons.clone();
            if reasons.is_empty() {
                reasons.push("there is none".to_owned());
            }
            return Err(TrainError::NoneWhole { place, reasons });
        }
        Ok(())
    }
}

/// The manifest that the first rank has `found`, confirmed by all.
fn choose(
    run: &Run<'_>,
    found: Option<Found>,
    passed: &mut Passed,
    world: &World,
) -> Result<Option<Manifest>, TrainError> {
    let found = found.unwrap_or_default();
    found.rejected.iter().for_each(|reason| passed.over(reason));
    passed.damaged |= found.damaged;
    let text = world.all.bytes_of_first("checkpoint", found.text.as_bytes())?;
    let place = run.storage.locate("");
    if text.is_empty() {
        world.all.agree("checkpoint", format!("none in {place}"))?;
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text);
    let manifest = Manifest::parse(&text, &place).map_err(Unusable::into_error)?;
    let place = run.storage.locate(&step_name(manifest.step));
    let said = format!("{place}, step {}, manifest {}", manifest.step, manifest.digest());
    world.all.agree("checkpoint", said)?;
    Ok(Some(manifest))
}
