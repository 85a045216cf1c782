//! The flags of the `train` binary.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::device::DeviceChoice;

/// Trains fine-grained mixture-of-experts language models from recipes.
#[derive(Debug, Parser)]
#[command(
    name = "train",
    version,
    after_help = "Example: train run examples/recipes/mini_d96.toml"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a recipe to its end, or to --steps.
    #[command(after_help = "Example: train run mini.toml --set seed=7 --steps 50 --out runs/seven")]
    Run(RunArgs),
    /// Say what a recipe amounts to, without running it: counts, FLOPs by part, steps, rates.
    #[command(after_help = "Example: train plan examples/recipes/d768.toml --json")]
    Plan(PlanArgs),
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The recipe (TOML).
    pub recipe: PathBuf,
    /// Change a field: path=value, as often as needed.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Stop after this many completed updates; the schedule stays that of the recipe.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Folder of the run; runs/NAME when absent.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on from the newest whole checkpoint in the folder; start from zero if there is none.
    #[arg(long)]
    pub resume: bool,
    /// The device.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceChoice,
}

/// Flags of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The recipe (TOML).
    pub recipe: PathBuf,
    /// Change a field: path=value, as often as needed.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
