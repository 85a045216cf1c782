//! `train data`: a file for each thing to do.

mod inspect;
mod mixture;
mod sources;

use clap::{Args, Subcommand};

use crate::error::TrainError;

/// Flags of `data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// What to do with data.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show the cells of a store: documents, tokens, bytes.
    #[command(after_help = "Example: train data inspect runs/cache/0123456789abcdef")]
    Inspect(inspect::InspectArgs),
    /// Plan a mixture over a run, and see what a change of it changes.
    #[command(after_help = "Example: train data mixture plan harrier")]
    Mixture(mixture::MixtureArgs),
    /// List the files that a data recipe or globs stand for: format, compression, size.
    #[command(after_help = "\
Example: train data sources pool.toml
         train data sources 'books/**/*.jsonl.zst' notes --json")]
    Sources(sources::SourcesArgs),
}

impl DataArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            DataCommand::Inspect(args) => args.execute(),
            DataCommand::Mixture(args) => args.execute(),
            DataCommand::Sources(args) => args.execute(),
        }
    }
}
