//! `train checkpoint`.

use clap::{Args, Subcommand};

use super::checkpoint_pins::PinArgs;
use crate::error::TrainError;

/// Flags of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

/// What to do with checkpoints.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Keep a checkpoint, whatever the recipe's retention says.
    #[command(after_help = "\
Example: train checkpoint pin runs/mini 400 --reason \"before the spike\"")]
    Pin(PinArgs),
    /// Take a pin back; a checkpoint that another run began with stays.
    #[command(after_help = "\
Example: train checkpoint unpin runs/mini 400 --reason \"looked at\"")]
    Unpin(PinArgs),
}

impl CheckpointArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        match &self.command {
            CheckpointCommand::Pin(args) => args.pin(),
            CheckpointCommand::Unpin(args) => args.unpin(),
        }
    }
}
