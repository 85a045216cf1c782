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
use crate::error::TrainError;
use crate::history::History;
use crate::state::TrainState;

/// What a run begins or goes on with.
#[derive(Debug)]
pub struct Resumed {
    /// The state.
    pub state: TrainState,
    /// The checkpoint that it is from; none at the start of a run.
    pub from: Option<Manifest>,
    /// What was passed over and why, newest first; of the first rank.
    pub passed_over: Vec<String>,
}

/// The newest state that is whole, and the checkpoint it is from; the first state of the run if
/// nothing was ever saved. What is passed over is said with its reason by the first rank.
///
/// `consumed` gives the rows taken from each cell after so many batches; `folder` is the run's, whose
/// history tells whether it has saved.
///
/// # Errors
/// [`TrainError::NoneWhole`] if the run has saved and no checkpoint is whole. If the newest is not of
/// this run. If a peer is lost, or sees another checkpoint.
pub fn resume(
    run: &Run<'_>,
    consumed: &dyn Fn(u64) -> BTreeMap<String, u64>,
    folder: &Path,
    world: &World,
    device: &Device,
) -> Result<Resumed, TrainError> {
    let mut passed = Passed::default();
    let mut before = None;
    loop {
        let found = world.is_first().then(|| newest(&**run.storage, before)).transpose()?;
        let chosen = choose(run, found, &mut passed, world)?;
        let mut state = TrainState::new(run.config, world, device)?;
        let Some(manifest) = chosen else {
            if world.is_first() {
                passed.start_from_zero(run, folder)?;
            }
            return Ok(Resumed { state, from: None, passed_over: passed.reasons });
        };
        let run = Run { consumed: consumed(manifest.batches), ..run.clone() };
        match restore(&manifest, &run, world, device, &mut state)? {
            Restored::Whole(census) => {
                if world.is_first() {
                    let (place, step) = (run.storage.locate(&step_name(state.step)), state.step);
                    println!("resumed from {place} (step {step}): {census}");
                }
                let (from, passed_over) = (Some(manifest), passed.reasons);
                return Ok(Resumed { state, from, passed_over });
            }
            Restored::Damaged(reason) => {
                before = Some(manifest.step);
                passed.damaged = true;
                if world.is_first() {
                    passed.over(&reason);
                }
            }
        }
    }
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
    fn start_from_zero(&self, run: &Run<'_>, folder: &Path) -> Result<(), TrainError> {
        let saved = History::read(folder)?.iter().any(|event| event.what == "saved");
        let place = run.storage.locate("");
        if self.damaged || saved {
            let mut reasons = self.reasons.clone();
            if reasons.is_empty() {
                reasons.push("there is none".to_owned());
            }
            return Err(TrainError::NoneWhole { place, reasons });
        }
        println!("no whole checkpoint in {place}: starting from zero");
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
    let text = world.all.gather_bytes("checkpoint", found.text.as_bytes())?.swap_remove(0);
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
