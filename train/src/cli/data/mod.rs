//! `train data`: a file for each thing to do.

mod build;
mod clean;
mod cluster;
mod files;
mod inspect;
mod mixture;
mod quality;
mod sources;
mod tokenizer;
mod verify;

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
    /// Make a token store of the files of a data recipe; goes on where a killed one stopped.
    #[command(after_help = "Example: train data build pool.toml --out stores/pool")]
    Build(build::BuildArgs),
    /// Show what is in a store: cells, lengths, where documents come from, samples.
    #[command(after_help = "\
Example: train data inspect runs/cache/0123456789abcdef --cell poetry/q3 --samples 3")]
    Inspect(inspect::InspectArgs),
    /// Plan a mixture over a run, and see what a change of it changes.
    #[command(after_help = "Example: train data mixture plan harrier")]
    Mixture(mixture::MixtureArgs),
    /// List the files that a data recipe or globs stand for: format, compression, size.
    #[command(after_help = "\
Example: train data sources pool.toml
         train data sources 'books/**/*.jsonl.zst' notes --json")]
    Sources(sources::SourcesArgs),
    /// Read every byte of a store and compare it with the record of its making.
    #[command(after_help = "Example: train data verify stores/pool")]
    Verify(verify::VerifyArgs),
    /// Train a byte-level BPE tokenizer.
    #[command(after_help = "\
Example: train data tokenizer pool.toml --vocab-size 65536 --out pool-65536.json")]
    Tokenizer(tokenizer::TokenizerArgs),
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
            DataCommand::Build(args) => args.execute(),
            DataCommand::Inspect(args) => args.execute(),
            DataCommand::Mixture(args) => args.execute(),
            DataCommand::Sources(args) => args.execute(),
            DataCommand::Verify(args) => args.execute(),
            DataCommand::Tokenizer(args) => args.execute(),
            DataCommand::Cluster(args) => args.execute(),
            DataCommand::Quality(args) => args.execute(),
            DataCommand::Clean(args) => args.execute(),
        }
    }
}
