//! `train checkpoint reshard`.

use std::path::PathBuf;

use clap::Args;
use fulmar_ep::Layout;

use super::layout;
use crate::checkpoint::{Manifest, reshard};
use crate::error::TrainError;
use crate::storage::{LocalStorage, Storage as _, storage_of_run};
use crate::telemetry::memory::human;

/// Flags of `checkpoint reshard`.
#[derive(Debug, Args)]
pub struct ReshardArgs {
    /// The run's folder, or a folder of checkpoints.
    pub run: PathBuf,
    /// The checkpoint after this many updates.
    #[arg(long, value_name = "N")]
    pub step: u64,
    /// Copies of the model.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub replicas: usize,
    /// Ranks that share the experts of a copy.
    #[arg(long, value_name = "P")]
    pub shards: usize,
    /// Folder for the new checkpoint's folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

impl ReshardArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let (storage, _) = storage_of_run(&self.run)?;
        let manifest = Manifest::read(&*storage, self.step)?;
        let to = LocalStorage::new(&self.out);
        let to_layout = Layout::new(self.replicas, self.shards);
        let written = reshard::reshard(&*storage, &manifest, to_layout, &to)?;
        println!(
            "step {}: {} -> {} (replicas x shards), {} in {} files below {}",
            self.step,
            layout(manifest.layout),
            layout(written.layout),
            human(written.num_bytes()),
            written.files.len(),
            to.locate(""),
        );
        Ok(())
    }
}
