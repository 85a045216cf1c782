//! `train prove`.

use std::path::PathBuf;

use clap::Args;

use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::prove::{ProveOptions, prove};

/// Flags of `prove`.
#[derive(Debug, Args)]
pub struct ProveArgs {
    /// Folder of the run.
    pub run: PathBuf,
    /// Steps to train again, at least; those since the checkpoint before if absent.
    #[arg(long, value_name = "K")]
    pub steps: Option<u64>,
    /// The checkpoint at which to end; the newest when absent.
    #[arg(long, value_name = "N")]
    pub until: Option<u64>,
    /// auto, cpu, wgpu or cuda; the kind that the run had.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub device: DeviceChoice,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ProveArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let Self { run, steps, until, device, json } = self;
        let proof = prove(&ProveOptions { run, steps, until, device })?;
        if json {
            println!("{}", proof.to_json());
        } else {
            println!("{proof}");
        }
        proof.verdict()
    }
}
