//! `train data mixture`: plans of mixtures, and what a change of one changes.

mod diff;
mod place;
mod plan;

use clap::{Args, Subcommand};

use crate::error::TrainError;

/// Flags of `data mixture`.
#[derive(Debug, Args)]
pub struct MixtureArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MixtureCommand,
}

/// What to do with a mixture.
#[derive(Debug, Subcommand)]
pub enum MixtureCommand {
    /// Say what a mixture amounts to over a run: stages, rows a block, shares, epochs by cell.
    #[command(after_help = "\
Example: train data mixture plan harrier --tokens 18750000000000
         train data mixture plan runs/hero --at 190650")]
    Plan(plan::PlanArgs),
    /// Say what another mixture changes: tokens, epochs and read positions by cell.
    #[command(after_help = "\
Example: train data mixture diff runs/hero new-stages.toml
         train data mixture diff old.toml new.toml --at 312192")]
    Diff(diff::DiffArgs),
}

impl MixtureArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        match &self.command {
            MixtureCommand::Plan(args) => args.execute(),
            MixtureCommand::Diff(args) => args.execute(),
        }
    }
}
