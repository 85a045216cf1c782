//! `train run`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::run::{RunOptions, run};
use crate::stop_signal::StopSignal;
use crate::{recipe, report};

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The recipe (TOML), or the folder of a run to go on with by its own.
    pub recipe: PathBuf,
    /// Change a field: path=value, as often as needed.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Stop after this many updates; the schedule stays that of the recipe.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Folder of the run; runs/NAME when absent.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on from the newest whole checkpoint; start from zero if none was saved.
    #[arg(long)]
    pub resume: bool,
    /// Leave this batch out, counted from 0 over the run; as often as needed.
    #[arg(long = "skip-batch", value_name = "N")]
    pub skip_batches: Vec<u64>,
    /// auto, cpu, wgpu or cuda.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub device: DeviceChoice,
}

impl RunArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        // A run's folder stands for the recipe that it began with.
        let (file, folder) = if self.recipe.is_dir() {
            (self.recipe.join("recipe.toml"), Some(self.recipe.clone()))
        } else {
            (self.recipe.clone(), None)
        };
        let mut config = recipe::load(&file, &self.set)?;
        let out = self.out.or(folder).unwrap_or_else(|| Path::new("runs").join(&config.name));
        config.guard.skip_batches.extend(&self.skip_batches);
        let options = RunOptions {
            out,
            device: self.device,
            resume: self.resume,
            stop_after: self.steps,
            samples: true,
            stop: StopSignal::listen()?,
            storage: None,
        };
        let summary = run(&config, &options)?;
        if summary.stopped {
            report::print_stopped(&self.recipe, &options, &summary);
        } else {
            report::print(&config, &options, &summary);
        }
        Ok(())
    }
}
