//! Trains the rungs of a ladder one after another.

use super::status::RungStatus;
use super::{Ladder, Rung, Standing};
use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::run::{RunOptions, RunSummary, run};
use crate::stop_signal::StopSignal;

/// How a ladder is climbed.
#[derive(Debug, Clone)]
pub struct Climb {
    /// The device of every rung.
    pub device: DeviceChoice,
    /// Names of the rungs to train; all when empty.
    pub rungs: Vec<String>,
    /// Raised to make the rung at hand save and end; no other is begun.
    pub stop: StopSignal,
}

/// Trains every rung that is not done, least compute first, each from its newest whole checkpoint; the
/// target's forecast is fixed before its first step. `before` is called before a rung is trained, `after`
/// with its summary. False if a signal ended it.
///
/// # Errors
/// As [`RungStatus::of`] of any rung, before one is trained; as [`Ladder::fix_forecast`] and [`run`]; an
/// unknown name; a rung that another process trains.
pub fn climb(
    ladder: &Ladder,
    climb: &Climb,
    before: &mut dyn FnMut(&Rung, &RungStatus),
    after: &mut dyn FnMut(&Rung, &RunSummary),
) -> Result<bool, TrainError> {
    let statuses =
        ladder.rungs.iter().map(RungStatus::of).collect::<Result<Vec<_>, TrainError>>()?;
    if let Some(unknown) = climb.rungs.iter().find(|name| !knows(ladder, name)) {
        let names: Vec<&str> = ladder.rungs.iter().map(Rung::name).collect();
        return Err(TrainError::config("--rung", unknown, format!("one of {}", names.join(", "))));
    }
    for (rung, status) in ladder.rungs.iter().zip(statuses) {
        let wanted = climb.rungs.is_empty() || climb.rungs.iter().any(|name| name == rung.name());
        if !wanted || status.standing == Standing::Done {
            continue;
        }
        let mut rung = rung.clone();
        rung.config.forecast = ladder.fix_forecast(&rung, &status)?;
        before(&rung, &status);
        let options = RunOptions {
            out: rung.folder.clone(),
            device: climb.device,
            resume: status.standing != Standing::NotBegun,
            stop_after: None,
            samples: true,
            stop: climb.stop.clone(),
            storage: None,
        };
        let summary = run(&rung.config, &options)?;
        after(&rung, &summary);
        if summary.stopped {
            return Ok(false);
        }
    }
    Ok(true)
}

fn knows(ladder: &Ladder, name: &str) -> bool {
    ladder.rungs.iter().any(|rung| rung.name() == name)
}
