//! `train checkpoint`.

use clap::{Args, Subcommand};

use super::{export, import};
use crate::error::TrainError;

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

/// What to do with a checkpoint.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Write a checkpoint's weights as other tools read them, read them again and compare logits.
    #[command(after_help = "\
Example: train checkpoint export runs/mini_d96 --step 600 --out mini-hf --dtype bf16")]
    Export(export::ExportArgs),
    /// Make a run of weights that other tools wrote; go on with `train run --resume`.
    #[command(after_help = "\
Example: train checkpoint import mini-hf --out runs/tuned --rows 8 --steps 100
         train run runs/tuned/recipe.toml --out runs/tuned --resume")]
    Import(import::ImportArgs),
}

impl CheckpointArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            CheckpointCommand::Export(args) => args.execute(),
            CheckpointCommand::Import(args) => args.execute(),
        }
    }
}
