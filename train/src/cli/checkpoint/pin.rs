//! `train checkpoint pin` and `train checkpoint unpin`.

use std::path::PathBuf;

use clap::Args;

use crate::checkpoint::{self, pins};
use crate::error::TrainError;
use crate::history::{Event, History};
use crate::storage::{Storage, storage_of_run};

/// Flags of `checkpoint pin` and `checkpoint unpin`.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// Folder of the run.
    pub run: PathBuf,
    /// Step of the checkpoint.
    pub step: u64,
    /// Why, for whoever reads it later.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

impl PinArgs {
    pub(super) fn pin(&self) -> Result<(), TrainError> {
        let storage = storage_of_run(&self.run)?.0;
        pins::pin(&*storage, self.step, &self.reason)?;
        self.tell(&*storage, "pinned")
    }

    pub(super) fn unpin(&self) -> Result<(), TrainError> {
        let storage = storage_of_run(&self.run)?.0;
        pins::unpin(&*storage, self.step, &self.reason)?;
        self.tell(&*storage, "unpinned")
    }

    /// What was done, into the run's history and to whoever asked for it.
    fn tell(&self, storage: &dyn Storage, what: &str) -> Result<(), TrainError> {
        let Self { run, step, reason } = self;
        let place = storage.locate(&checkpoint::step_name(*step));
        let event = Event::now(*step, 0, what, reason).with("checkpoint", place.clone());
        History::open(run)?.append(&event)?;
        println!("{what}: {place} ({reason})");
        Ok(())
    }
}
