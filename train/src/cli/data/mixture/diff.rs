//! `train data mixture diff`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Stage;
use fulmar_data::mixture::{MixtureDiff, MixtureRun};

use super::place::Place;
use crate::error::TrainError;

/// Flags of `data mixture diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The mixture before: a mixture file, a recipe, a run's folder or `harrier`.
    pub before: PathBuf,
    /// Another, or stages alone (TOML) in the place of those not begun.
    pub after: PathBuf,
    /// What may change begins here; where the run stands when absent.
    #[arg(long, value_name = "STEP")]
    pub at: Option<u64>,
    /// Take the cells of this store for both.
    #[arg(long)]
    pub store: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl DiffArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let (before, after) = (Place::find(&self.before)?, Place::find(&self.after)?);
        let step = self.at.or(before.step()).unwrap_or(0);
        let store = self.store.as_deref();
        let old = before.run(store)?;
        let new = match after {
            Place::Stages(stages) => with_stages(&old, stages, step)?,
            place => place.run(store)?,
        };
        let diff = MixtureDiff::new(&old, &new, step)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&diff).expect("plain values"));
        } else {
            print!("{diff}");
        }
        Ok(new.report(step)?.require_epochs()?)
    }
}

/// The run with `new` stages in the place of those that have not begun at a step.
fn with_stages(run: &MixtureRun, new: Vec<Stage>, step: u64) -> Result<MixtureRun, TrainError> {
    let begun = run.next_block(step)?;
    let mut changed = run.clone();
    // The first stage has begun even where no row was read. What has begun and lies behind a new one
    // goes too, so that the comparison says what it would move.
    let first = new.first().map_or(u64::MAX, |stage| stage.from_block);
    let stays = |from_block: u64| from_block < first && (from_block == 0 || from_block < begun);
    changed.mixture.stages.retain(|stage| stays(stage.from_block));
    changed.mixture.stages.extend(new);
    changed.mixture.validate()?;
    Ok(changed)
}
