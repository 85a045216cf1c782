//! A run from its recipe to its summary: what is checked and opened before the first step.

use std::path::PathBuf;

use fulmar_ep::World;
use fulmar_eval::EvalReport;

use crate::assemble::{self, RunData};
use crate::checkpoint::{self, Manifest};
use crate::config::RunConfig;
use crate::device::{self, DeviceChoice, OpenDevice};
use crate::error::TrainError;
use crate::launch::on_ranks;
use crate::plan::grouped;
use crate::samples::Sample;
use crate::state::TrainState;
use crate::step::StepReport;
use crate::stop_signal::StopSignal;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::memory::Sizes;
use crate::training_loop::{Assembled, TrainingLoop};
use crate::watchdog::{Board, Limits, Watchdog};

/// How a run is started; what it computes is in its [`RunConfig`].
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The run's folder.
    pub out: PathBuf,
    /// The device.
    pub device: DeviceChoice,
    /// Go on from the newest whole checkpoint in the folder, if there is one.
    pub resume: bool,
    /// Stop after this many completed updates instead of at the schedule's end.
    pub stop_after: Option<u64>,
    /// Let the model write a few continuations at the end.
    pub samples: bool,
    /// Raised to make the run save and end after the step at hand.
    pub stop: StopSignal,
}

/// What a run leaves behind for its last words.
#[derive(Debug)]
pub struct RunSummary {
    /// Whether this is the first rank's, which speaks for all.
    pub first_rank: bool,
    /// The state at the end.
    pub state: TrainState,
    /// What was read.
    pub data: RunData,
    /// The device.
    pub device: OpenDevice,
    /// Step and loss of every step of this attempt.
    pub losses: Vec<(u64, f64)>,
    /// The last step's report, if a step was taken.
    pub last: Option<StepReport>,
    /// Whether a signal ended the run.
    pub stopped: bool,
    /// The model on the held-out text; none of a run that was stopped.
    pub heldout: Option<EvalReport>,
    /// The bigram on the held-out text, if it was counted.
    pub bigram: Option<EvalReport>,
    /// Continuations that the model wrote, if asked for.
    pub samples: Vec<Sample>,
    /// Seconds in training steps.
    pub train_secs: f64,
    /// Steps taken in this attempt.
    pub steps_taken: u64,
    /// Batches left out because they were not finite.
    pub skipped: u64,
    /// The metric log.
    pub log: PathBuf,
    /// The last checkpoint, if any was saved.
    pub checkpoint: Option<PathBuf>,
}

impl RunSummary {
    /// Tokens a second over the steps of this attempt; 0 without steps.
    pub fn tokens_per_second(&self, config: &RunConfig) -> f64 {
        let tokens = (self.steps_taken * config.tokens_per_step()) as f64;
        if self.steps_taken == 0 { 0.0 } else { tokens / self.train_secs }
    }
}

/// Runs `config` to its end or to `options.stop_after`, on all its ranks; the summary is that of
/// the first rank of this process.
///
/// # Errors
/// Before anything is written: a broken rule, a missing device, data that cannot be read, or a
/// folder that holds another run. Later: a step that is not finite, a file that cannot be written.
/// Of several ranks, the first cause, with the rank's number.
pub fn run(config: &RunConfig, options: &RunOptions) -> Result<RunSummary, TrainError> {
    config.validate()?;
    let end = end_of(config, options)?;
    let board = Board::default();
    let _watchdog = Watchdog::start(&board, Limits::of(config));
    on_ranks(config, |world| run_rank(config, options, end, world, &board))
}

fn run_rank(
    config: &RunConfig,
    options: &RunOptions,
    end: u64,
    world: &World,
    board: &Board,
) -> Result<RunSummary, TrainError> {
    let pulse = board.enrol(world.rank());
    let device = device::open(options.device)?;
    device::require_types(config, &device)?;
    let newest = newest_for_all(options, world)?;
    let data = assemble::data_of_rank(config, world)?;
    let mut state = TrainState::new(config, world, &device.device)?;
    if let Some((path, manifest)) = newest.filter(|_| options.resume) {
        let experts = world.experts(config.model.num_experts);
        let from = checkpoint::load::Source { path: &path, manifest: &manifest, experts };
        checkpoint::load::restore(&from, config, &data.digest, &device.device, &mut state)?;
        if world.is_first() {
            println!("resumed from {} (step {})", path.display(), state.step);
        }
    }
    if world.is_first() {
        println!("device: {}", device.name);
        if state.step >= end {
            println!("no step to take: the run ends at step {end}");
        }
        describe(config, &data, &state);
        write_identity(config, options, &state)?;
    }
    let assembled = Assembled { device, data, state, pulse, board };
    TrainingLoop::new(config, options, world, assembled, end)?.run()
}

/// Recipe and optimizer table into the run's folder.
fn write_identity(
    config: &RunConfig,
    options: &RunOptions,
    state: &TrainState,
) -> Result<(), TrainError> {
    let recipe = options.out.join(checkpoint::RECIPE);
    std::fs::create_dir_all(&options.out).map_err(TrainError::io("create", &options.out))?;
    std::fs::write(&recipe, crate::recipe::to_toml(config))
        .map_err(TrainError::io("write", &recipe))?;
    let table = options.out.join("optimizer_table.txt");
    std::fs::write(&table, state.optimizer.table().to_string())
        .map_err(TrainError::io("write", &table))
}

/// The newest whole checkpoint as the first rank sees it; all others confirm its manifest.
///
/// Ranks that look for themselves may find different ones while a folder is being written.
fn newest_for_all(
    options: &RunOptions,
    world: &World,
) -> Result<Option<(PathBuf, Manifest)>, TrainError> {
    let mut found = None;
    if world.is_first() {
        let newest = checkpoint::newest(&options.out)?;
        refuse_to_overwrite(&newest, options)?;
        say_what_was_found(&newest, options);
        found = newest.newest;
    }
    let step = found.as_ref().map_or([0, 0], |(_, manifest)| [1, manifest.step]);
    let chosen = world.all.gather_u64("checkpoint", &step)?.swap_remove(0);
    if chosen[0] == 0 {
        return Ok(None);
    }
    let (path, manifest) = match found {
        Some(found) => found,
        None => {
            let path = checkpoint::step_folder(&options.out, chosen[1]);
            let manifest = Manifest::read(&path)?;
            (path, manifest)
        }
    };
    world.all.agree("manifest of the checkpoint", manifest.digest())?;
    Ok(Some((path, manifest)))
}

fn end_of(config: &RunConfig, options: &RunOptions) -> Result<u64, TrainError> {
    let horizon = config.schedule.steps;
    match options.stop_after {
        Some(steps) if steps > horizon => {
            let rule =
                format!("at most `schedule.steps` = {horizon}; raise that one to train longer");
            Err(TrainError::config("--steps", steps, rule))
        }
        stop => Ok(stop.unwrap_or(horizon)),
    }
}

/// Without `--resume` a run starts in a folder that holds none.
fn refuse_to_overwrite(found: &checkpoint::Found, options: &RunOptions) -> Result<(), TrainError> {
    if options.resume {
        return Ok(());
    }
    let holds = match &found.newest {
        Some((_, manifest)) => format!("a run at step {}", manifest.step),
        None if options.out.join(LOG_FILE).exists() => "a run without a checkpoint".to_owned(),
        None => return Ok(()),
    };
    let advice = "go on with --resume or choose another --out";
    Err(TrainError::checkpoint(&options.out, format!("the folder holds {holds}; {advice}")))
}

fn say_what_was_found(found: &checkpoint::Found, options: &RunOptions) {
    if !options.resume {
        return;
    }
    for reason in &found.rejected {
        println!("passed over: {reason}");
    }
    if found.newest.is_none() {
        println!("no whole checkpoint in {}: starting from zero", options.out.display());
    }
}

fn describe(config: &RunConfig, data: &RunData, state: &TrainState) {
    let model = &config.model;
    println!(
        "model: {} parameters, {} active; {} layers, {} experts, top-{}",
        grouped(model.num_params()),
        grouped(model.num_active_params()),
        model.num_layers,
        model.num_experts,
        model.num_experts_per_token,
    );
    if config.parallel.num_ranks() > 1 {
        let parallel = &config.parallel;
        let (replicas, shards) = (parallel.replicas, parallel.shards);
        println!(
            "ranks: {replicas} x {shards} (replicas x shards), {} experts each; exchange {}",
            model.num_experts / shards,
            parallel.dispatch_at(state.step).name(),
        );
    }
    let manifest = data.rows.store().manifest();
    println!(
        "data: {} tokens in {} documents, {:.2} bytes a token; {} held-out documents",
        grouped(manifest.num_tokens()),
        grouped(manifest.num_documents()),
        data.bytes_per_token,
        data.heldout.documents().len(),
    );
    let peaks = state.optimizer.peaks();
    println!(
        "optimizer: {} (table {}); peak rates muonh {:.6}, adam {:.6}",
        state.optimizer.table().summary(),
        &state.optimizer.table().digest()[..12],
        peaks.lr_muonh,
        peaks.lr_adam,
    );
    print!("{}", Sizes::of(state));
}
