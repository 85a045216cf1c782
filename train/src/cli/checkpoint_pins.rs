//! `train checkpoint pin` and `train checkpoint unpin`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::checkpoint::{self, pins};
use crate::error::TrainError;
use crate::history::{Event, History};
use crate::recipe;
use crate::storage::{Storage, open_storage};

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
        let storage = self.storage()?;
        pins::pin(&*storage, self.step, &self.reason)?;
        self.tell(&*storage, "pinned")
    }

    pub(super) fn unpin(&self) -> Result<(), TrainError> {
        let storage = self.storage()?;
        pins::unpin(&*storage, self.step, &self.reason)?;
        self.tell(&*storage, "unpinned")
    }

    /// Where the run's checkpoints lie, by the recipe in its folder.
    fn storage(&self) -> Result<Arc<dyn Storage>, TrainError> {
        let config = recipe::load(&self.run.join(checkpoint::RECIPE), &[])?;
        open_storage(&config, &self.run)
    }

    /// What was done, into the run's history and to whoever asked for it.
    fn tell(&self, storage: &dyn Storage, what: &str) -> Result<(), TrainError> {
        let Self { run, step, reason } = self;
        let place = storage.locate(&format!("step-{step:08}"));
        let event = Event::now(*step, 0, what, reason).with("checkpoint", place.clone());
        History::open(run)?.append(&event)?;
        println!("{what}: {place} ({reason})");
        Ok(())
    }
}
