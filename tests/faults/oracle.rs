//! What must hold after a fault.

use std::collections::BTreeMap;
use std::path::Path;

use fulmar::train::checkpoint::verify::verify;
use fulmar::train::checkpoint::{self, Manifest, candidates};
use fulmar::train::history::{Event, History};
use fulmar::train::storage::LocalStorage;
use fulmar::train::telemetry::stitch::{Curve, updates_of_run};
use fulmar::train::telemetry::{Metrics, names};

use crate::scenario::{EVERY, STEPS, Scenario};
use crate::tiny::assert_same_files;

/// Where the checkpoints of a run lie.
pub(crate) fn storage_of(run: &Path) -> LocalStorage {
    LocalStorage::new(checkpoint::folder(run))
}

/// Fails unless the run has come to the end of the undisturbed one: the same digests of weights and
/// of the whole state, the same files, and the same log of every step.
pub(crate) fn same_end(scenario: &Scenario, run: &Path) -> Result<(), String> {
    let undisturbed = &scenario.undisturbed().run;
    whole(run, STEPS)?;
    let manifest = |run: &Path| {
        Manifest::read(&storage_of(run), STEPS).map_err(|error| format!("the end: {error}"))
    };
    let (found, needed) = (manifest(run)?, manifest(undisturbed)?);
    for (what, found, needed) in
        [("weights", found.weights, needed.weights), ("state", found.state, needed.state)]
    {
        if found != needed {
            return Err(format!("final {what} {found}, needed {needed}"));
        }
    }
    let [found, needed] = [run, undisturbed].map(|run| checkpoint::step_folder(run, STEPS));
    assert_same_files(&found, &needed);
    same_steps(undisturbed, run, STEPS)
}

/// Fails unless both logs have the same rows, losses and norms in every step up to `last`, each
/// step once where attempts are stitched.
pub(crate) fn same_steps(undisturbed: &Path, run: &Path, last: u64) -> Result<(), String> {
    let log = |run: &Path| -> Result<BTreeMap<u64, Metrics>, String> {
        let mut steps = updates_of_run(run, 0..=u64::MAX).map_err(|error| error.chain())?;
        steps.retain(|step, _| *step <= last);
        let varies = |name: &str| {
            name.starts_with("throughput/")
                || [names::PEAK_RESIDENT, names::ATTEMPT].contains(&name)
        };
        for line in steps.values_mut() {
            line.retain(|name, _| !varies(name));
        }
        Ok(steps)
    };
    let (found, needed) = (log(run)?, log(undisturbed)?);
    let steps: Vec<u64> = found.keys().copied().collect();
    if steps != (1..=last).collect::<Vec<_>>() {
        return Err(format!("the log has the steps {steps:?}, needed 1 to {last}"));
    }
    for (step, needed) in &needed {
        for (name, needed) in needed {
            let found = found[step].get(name);
            if found != Some(needed) {
                return Err(format!("`{name}` of step {step} is {found:?}, needed {needed}"));
            }
        }
    }
    let curve = Curve::read(run, names::LOSS, 1).map_err(|error| error.chain())?;
    match (curve.gaps, curve.doubles) {
        (0, 0) => Ok(()),
        (gaps, doubles) => Err(format!("the log has {gaps} gaps and {doubles} doubles")),
    }
}

/// Fails unless the checkpoint of a step is whole, all its bytes.
pub(crate) fn whole(run: &Path, step: u64) -> Result<(), String> {
    match verify(&storage_of(run), step) {
        Ok((_, problems)) if problems.is_empty() => Ok(()),
        Ok((_, problems)) => Err(format!("step {step} is not whole: {}", problems[0])),
        Err(problem) => Err(format!("step {step} is not whole: {problem}")),
    }
}

/// The newest step whose checkpoint is whole by all its checksums; 0 for none.
pub(crate) fn newest_whole(run: &Path) -> u64 {
    let storage = storage_of(run);
    let steps = candidates(&storage).expect("listed").map(|found| found.step);
    let newest = steps.into_iter().find(|step| whole(run, *step).is_ok());
    newest.unwrap_or(0)
}

/// Events of a kind.
pub(crate) fn events(run: &Path, what: &str) -> Result<Vec<Event>, String> {
    let mut events = History::read(run).map_err(|error| error.chain())?;
    events.retain(|event| event.what == what);
    Ok(events)
}

/// The step that each recorded start of the run began with.
pub(crate) fn starts(run: &Path) -> Result<Vec<u64>, String> {
    Ok(events(run, "started")?.iter().map(|event| event.step).collect())
}

/// The last step that the log has, of any attempt since the step that it began with.
pub(crate) fn last_logged(run: &Path) -> Result<u64, String> {
    let steps = updates_of_run(run, 0..=u64::MAX).map_err(|error| error.chain())?;
    Ok(steps.keys().max().copied().unwrap_or(0))
}

/// What a death at this moment may cost: the newest checkpoint that is whole, from which the next
/// start has to go on. Fails if more is lost than since the last save that can have been whole.
pub(crate) fn loss_of_death(scenario: &Scenario, run: &Path) -> Result<u64, String> {
    let (newest, last) = (newest_whole(run), last_logged(run)?);
    let saved = events(run, "saved")?;
    let saved = saved.iter().filter_map(|event| event.detail["of"].as_u64()).max().unwrap_or(0);
    if newest < saved {
        return Err(format!("step {saved} was saved, and the newest whole one is {newest}"));
    }
    // A save beside training may be under way when the next is due, which is left out and said.
    let left_out =
        if scenario.background { 1 + events(run, "save_skipped")?.len() as u64 } else { 0 };
    let most = EVERY * (1 + left_out);
    if last.saturating_sub(newest) > most {
        return Err(format!("steps {newest} to {last} are lost, at most {most} may be"));
    }
    Ok(newest)
}
