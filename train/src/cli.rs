//! The flags of the `train` binary.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use fulmar_ep::replay::RowFormat;

use crate::capacity::{Concentration, Documents, Drawn, Exchange, Synthetic};
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
    /// Say what a recipe amounts to, without running it: counts, FLOPs by part, steps, rates, memory.
    #[command(after_help = "Example: train plan examples/recipes/d768.toml --json")]
    Plan(PlanArgs),
    /// Say what each exchange rule would drop, hold and send, by replaying choices of experts.
    #[command(after_help = "\
Example: train capacity --rows 65536 --factors 1.15,1.33 --documents lognormal:600:1.2
         train capacity --choices step-81000.safetensors --experts 384 --json")]
    Capacity(CapacityArgs),
    /// Say which device and kernels a run would use, and whether they compute what they mean.
    #[command(after_help = "Example: train doctor --device wgpu")]
    Doctor(DoctorArgs),
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

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The device.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceChoice,
    /// Examine one operation in this very process and print the findings as JSON.
    #[arg(long, value_name = "NAME", requires = "json")]
    pub op: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `capacity`; the defaults are the published run's.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Shards that exchange.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub shards: usize,
    /// Experts of a layer.
    #[arg(long, value_name = "N", default_value_t = 384)]
    pub experts: usize,
    /// Experts of a token.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub top_k: usize,
    /// Tokens of a shard.
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub tokens: usize,
    /// Tokens of a row.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "4096,8192,65536,262144"
    )]
    pub rows: Vec<usize>,
    /// Capacity factors.
    #[arg(
        long,
        value_name = "X,..",
        value_delimiter = ',',
        default_value = "1,1.05,1.1,1.15,1.25,1.33"
    )]
    pub factors: Vec<f64>,
    /// Waves of the pooled-wave rule.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub waves: usize,
    /// Elements of a row that travels.
    #[arg(long, value_name = "N", default_value_t = 3_072)]
    pub latent: u64,
    /// Bytes of an element.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub element_bytes: u64,
    /// Document tokens: row (all), N or lognormal:MEDIAN:SIGMA.
    #[arg(long, value_name = "LENGTH", default_value_t = Documents::Row)]
    pub documents: Documents,
    /// Whether biases that even out the batch before apply.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        hide_possible_values = true
    )]
    pub balanced: bool,
    /// How much documents resemble each other; fitted when absent.
    #[arg(long, value_name = "X", conflicts_with = "fit")]
    pub concentration: Option<f64>,
    /// Share that pooled-wave drops at 1.15 in rows of 4,096.
    #[arg(long, value_name = "SHARE", default_value_t = 0.03)]
    pub fit: f64,
    /// Seed of all that is drawn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Replay recorded choices: safetensors, int32 `selected` and maybe `valid`.
    #[arg(long, value_name = "FILE", requires = "experts", conflicts_with_all = DRAWN)]
    pub choices: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags that say nothing about recorded choices.
const DRAWN: [&str; 9] =
    ["shards", "top_k", "tokens", "rows", "documents", "balanced", "concentration", "fit", "seed"];

impl CapacityArgs {
    /// Who exchanges.
    pub fn exchange(&self) -> Exchange {
        Exchange {
            shards: self.shards,
            num_experts: self.experts,
            experts_per_token: self.top_k,
            tokens: self.tokens,
            waves: self.waves,
            payload: RowFormat { width: self.latent, element_bytes: self.element_bytes },
            factors: self.factors.clone(),
        }
    }

    /// What is drawn.
    pub fn drawn(&self) -> Drawn {
        let Self { documents, balanced, seed, .. } = *self;
        Drawn {
            rows: self.rows.clone(),
            synthetic: Synthetic { documents, balanced, seed },
            concentration: match self.concentration {
                Some(given) => Concentration::Given(given),
                None => Concentration::Fit(self.fit),
            },
        }
    }
}
