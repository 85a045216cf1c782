//! `train checkpoint`: a file for each thing to do.

mod export;
mod import;
mod list;
mod pin;
mod reshard;
mod verify;

use clap::{Args, Subcommand};

use crate::checkpoint::manifest::SavedLayout;
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
    /// Show the checkpoints of a run: step, size, layout, and whether each is whole.
    #[command(after_help = "Example: train checkpoint list runs/mini --json")]
    List(list::ListArgs),
    /// Read every byte of a checkpoint and say what is wrong with it.
    #[command(after_help = "Example: train checkpoint verify runs/mini --step 400")]
    Verify(verify::VerifyArgs),
    /// Keep a checkpoint, whatever the recipe's retention says.
    #[command(after_help = "\
Example: train checkpoint pin runs/mini 400 --reason \"before the spike\"")]
    Pin(pin::PinArgs),
    /// Take a pin back; a checkpoint that another run began with stays.
    #[command(after_help = "\
Example: train checkpoint unpin runs/mini 400 --reason \"looked at\"")]
    Unpin(pin::PinArgs),
    /// Write a checkpoint for another number of ranks; a run needs no such thing to go on.
    #[command(after_help = "\
Example: train checkpoint reshard runs/mini --step 400 --replicas 2 --shards 4 --out elsewhere")]
    Reshard(reshard::ReshardArgs),
    /// Write a checkpoint's weights as other tools read them, read them again and compare logits.
    #[command(after_help = "\
Example: train checkpoint export runs/mini_d96 --step 706 --out mini-hf --dtype bf16")]
    Export(export::ExportArgs),
    /// Make a run of weights that other tools wrote; go on with `train run --resume`.
    #[command(after_help = "\
Example: train checkpoint import mini-hf --out runs/tuned --rows 8 --steps 100
         train run runs/tuned --resume")]
    Import(import::ImportArgs),
}

impl CheckpointArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            CheckpointCommand::List(args) => args.execute(),
            CheckpointCommand::Verify(args) => args.execute(),
            CheckpointCommand::Pin(args) => args.pin(),
            CheckpointCommand::Unpin(args) => args.unpin(),
            CheckpointCommand::Reshard(args) => args.execute(),
            CheckpointCommand::Export(args) => args.execute(),
            CheckpointCommand::Import(args) => args.execute(),
        }
    }
}

fn layout(SavedLayout { replicas, shards, .. }: SavedLayout) -> String {
    format!("{replicas} x {shards}")
}
