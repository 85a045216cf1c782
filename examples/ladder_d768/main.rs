//! The first rung of the ladder: whole on a GPU, in miniature on a laptop.
//!
//! ```text
//! cargo run --release --example ladder_d768
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use fulmar::prelude::*;
use fulmar::train::device::{self, OpenDevice};
use fulmar::train::stop_signal::StopSignal;
use fulmar::train::{exit, recipe, report};

const MINI: &str = include_str!("../recipes/mini_d96.toml");
const FULL: &str = include_str!("../recipes/d768.toml");

/// Steps of the whole rung without data of its own: enough to see that it runs.
const SMOKE_STEPS: u64 = 20;

/// Bytes a parameter takes in training: weight, gradient, and up to two moments, in f32.
const BYTES_PER_PARAM: u64 = 16;
/// Logits of a micro-batch that a GPU without a fused loss holds at once: they, their softmax and
/// their gradient.
const LOGITS_HELD: u64 = 3;

/// Trains the d768 rung, or its miniature, and shows what was learned.
#[derive(Parser)]
#[command(
    after_help = "Example: cargo run --release --example ladder_d768 -- --seed 7 --out runs/seven"
)]
struct Args {
    /// The device.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceChoice,
    /// The true rung, its miniature, or whichever the device can hold.
    #[arg(long, value_enum, default_value_t = Scale::Auto)]
    scale: Scale,
    /// A token store to train on, instead of the shipped corpus.
    #[arg(long, value_name = "STORE", requires = "tokenizer")]
    data: Option<PathBuf>,
    /// The tokenizer of the store.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Stop after this many completed steps; the schedule stays that of the recipe.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Folder of the run.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on from the newest whole checkpoint in the folder.
    #[arg(long)]
    resume: bool,
    /// Seed of weights and of the order of rows.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// `full` where an accelerator with enough memory is there, else `mini`.
    Auto,
    /// The same depth and routing at width 96: minutes on two cores.
    Mini,
    /// The true rung: 1.6B parameters, 1,024 rows of 4,096 tokens a step.
    Full,
}

fn main() -> ExitCode {
    keep_freed_memory();
    if cfg!(debug_assertions) {
        println!("this is a debug build, several times slower; add --release to cargo run");
    }
    match ladder(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            exit::status_of(&error).into()
        }
    }
}

fn ladder(args: &Args) -> Result<(), TrainError> {
    let device = device::open(args.device)?;
    let full = choose_full(args, &device)?;
    let (config, smoke) = configure(args, full)?;
    let options = RunOptions {
        out: args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&config.name)),
        device: args.device,
        resume: args.resume,
        stop_after: args.steps.or(smoke.then_some(SMOKE_STEPS)),
        samples: true,
        stop: StopSignal::listen()?,
        storage: None,
    };
    let summary = run(&config, &options)?;
    report::print(&config, &options, &summary);
    Ok(())
}

/// Says which scale is taken and why, before anything else.
fn choose_full(args: &Args, device: &OpenDevice) -> Result<bool, TrainError> {
    let needed = memory_needed(&recipe::parse(FULL, "d768.toml", &[])?);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let enough = device.accelerator && device.memory_bytes >= needed;
    let (full, why) = match args.scale {
        Scale::Mini => (false, "as asked".to_owned()),
        Scale::Full => (true, "as asked".to_owned()),
        Scale::Auto if enough => (true, format!("{} can hold it", device.name)),
        Scale::Auto if device.accelerator => {
            let (has, needs) = (gib(device.memory_bytes), gib(needed));
            (false, format!("{} has {has:.0} GiB, the whole rung needs {needs:.0}", device.name))
        }
        Scale::Auto => (false, format!("no hardware accelerator in use: {}", device.name)),
    };
    println!("scale: {} ({why})", if full { "full" } else { "mini" });
    if !cfg!(any(feature = "wgpu", feature = "cuda")) {
        println!(
            "to use a GPU: cargo run --release --example ladder_d768 --features cuda   (or wgpu)"
        );
    }
    Ok(full)
}

/// The recipe of the scale with what the flags change, and whether it is a smoke run.
fn configure(args: &Args, full: bool) -> Result<(RunConfig, bool), TrainError> {
    let (text, name) = if full { (FULL, "d768.toml") } else { (MINI, "mini_d96.toml") };
    let mut config = recipe::parse(text, name, &[format!("seed={}", args.seed)])?;
    config.data.store.clone_from(&args.data);
    config.data.tokenizer.clone_from(&args.tokenizer);
    let smoke = full && args.data.is_none();
    if smoke {
        println!(
            "no --data: a smoke run of {SMOKE_STEPS} steps of the whole rung on the shipped corpus"
        );
    }
    Ok((config, smoke))
}

fn memory_needed(config: &RunConfig) -> u64 {
    let tokens = config.micro_rows() * config.model.max_seq_len as u64;
    let logits = tokens * config.model.vocab_size as u64 * 4;
    config.model.num_params() * BYTES_PER_PARAM + LOGITS_HELD * logits
}
