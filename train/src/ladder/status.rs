//! Where the rungs of a ladder stand.

use std::fmt;

use serde::Serialize;

use super::{Ladder, Rung};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::operations::first_difference;
use crate::past_run::PastRun;
use crate::plan::grouped;
use crate::recipe;
use crate::run_lock::RunLock;
use crate::telemetry::names;

/// How far a rung is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No run in its folder.
    NotBegun,
    /// A process trains it right now.
    Running,
    /// Begun, and nobody trains it.
    Stopped,
    /// Trained and evaluated to its end.
    Done,
}

/// A rung and how far it is.
#[derive(Debug, Clone, Serialize)]
pub struct RungStatus {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub standing: Standing,
    /// Completed updates in the log.
    pub step: u64,
    /// Updates of the whole run.
    pub steps: u64,
    /// Starts so far.
    pub attempts: u64,
    /// Seconds in training steps that count.
    pub train_secs: f64,
    /// Step and macro loss of the last evaluation.
    pub heldout: Option<(u64, f64)>,
}

/// Where a ladder stands.
#[derive(Debug, Clone, Serialize)]
pub struct LadderStatus {
    /// Name of the ladder.
    pub name: String,
    /// Its rungs, least compute first.
    pub rungs: Vec<RungStatus>,
}

impl LadderStatus {
    /// Looks at the folders of a ladder's runs.
    ///
    /// # Errors
    /// If a folder holds a run of another recipe, naming the first field, or cannot be read.
    pub fn of(ladder: &Ladder) -> Result<Self, TrainError> {
        let rungs = ladder.rungs.iter().map(RungStatus::of).collect::<Result<_, _>>()?;
        Ok(Self { name: ladder.name.clone(), rungs })
    }
}

impl RungStatus {
    /// Looks at the folder of a rung's run.
    ///
    /// # Errors
    /// As [`LadderStatus::of`].
    pub fn of(rung: &Rung) -> Result<Self, TrainError> {
        let steps = rung.config.schedule.horizon();
        let mut status = Self {
            name: rung.name().to_owned(),
            standing: Standing::NotBegun,
            step: 0,
            steps,
            attempts: 0,
            train_secs: 0.0,
            heldout: None,
        };
        let first = rung.folder.join("recipe.toml");
        if !first.exists() {
            return Ok(status);
        }
        same_recipe(rung, &recipe::load(&first, &[])?)?;
        let run = PastRun::open(&rung.folder)?;
        let curves = run.curves(&[names::LOSS, names::DURATION])?;
        status.step = curves[0].points.last_key_value().map_or(0, |(step, _)| *step);
        status.train_secs = curves[1].points.values().sum();
        status.attempts = run.starts().count() as u64;
        status.heldout = run.heldout()?.points.last_key_value().map(|(step, loss)| (*step, *loss));
        let ended = status.heldout.is_some_and(|(step, _)| step == steps);
        status.standing = match () {
            () if RunLock::is_held(&rung.folder) => Standing::Running,
            () if ended => Standing::Done,
            () => Standing::Stopped,
        };
        Ok(status)
    }
}

/// Fails if the folder's run began with another recipe, but for what a ladder adds: the forecast that it
/// is watched against.
fn same_recipe(rung: &Rung, begun: &RunConfig) -> Result<(), TrainError> {
    let value = |config: &RunConfig| {
        let bare = RunConfig { forecast: None, ..config.clone() };
        serde_json::to_value(bare).expect("a config of plain values")
    };
    let (ours, theirs) = (value(&rung.config), value(begun));
    match first_difference("", &ours, &theirs) {
        None => Ok(()),
        Some((field, ours, theirs)) => Err(TrainError::Recipe {
            origin: rung.folder.display().to_string(),
            field,
            problem: format!(
                "the run there has {theirs}, the rung {ours}; choose another `out` or move the run away"
            ),
        }),
    }
}

impl fmt::Display for LadderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:<10} {:>17} {:>6} {:>8} {:>9} {:>20}",
            self.name, "", "updates", "", "attempts", "training", "held-out, macro"
        )?;
        for rung in &self.rungs {
            let standing = match rung.standing {
                Standing::NotBegun => "not begun",
                Standing::Running => "running",
                Standing::Stopped => "stopped",
                Standing::Done => "done",
            };
            let heldout = rung
                .heldout
                .map_or_else(|| "-".to_owned(), |(step, loss)| format!("{loss:.4} at {step}"));
            writeln!(
                f,
                "{:<10} {standing:<10} {:>17} {:>5.1}% {:>8} {:>8.1}m {heldout:>20}",
                rung.name,
                format!("{} / {}", grouped(rung.step), grouped(rung.steps)),
                100.0 * rung.step as f64 / rung.steps as f64,
                rung.attempts,
                rung.train_secs / 60.0,
            )?;
        }
        Ok(())
    }
}
