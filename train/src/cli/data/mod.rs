//! `train data`: a file for each thing to do.

mod clean;
mod cluster;
mod files;
mod inspect;
mod quality;

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
    /// Sort documents into domains by what they are about, with k-means.
    #[command(
        after_help = "Example: train data cluster books.jsonl.zst web.jsonl --out clusters.json"
    )]
    Cluster(cluster::ClusterArgs),
    /// Sort documents into levels of quality by a score, given or learned from examples.
    #[command(after_help = "\
Example: train data quality web.jsonl --good good.jsonl --bad bad.jsonl --out quality.json")]
    Quality(quality::QualityArgs),
    /// Find documents that repeat others or hold evaluation texts.
    #[command(after_help = "\
Example: train data clean books.jsonl web.jsonl --evaluation heldout.jsonl --out clean.jsonl")]
    Clean(clean::CleanArgs),
}

impl DataArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            DataCommand::Inspect(args) => args.execute(),
            DataCommand::Cluster(args) => args.execute(),
            DataCommand::Quality(args) => args.execute(),
            DataCommand::Clean(args) => args.execute(),
        }
    }
}
