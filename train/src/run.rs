//! A run from its recipe to its summary: what is checked and opened before the first step.

use std::path::PathBuf;
use std::sync::Arc;

use fulmar_ep::World;
use fulmar_ep::transport::Transport;
use fulmar_eval::EvalReport;

use crate::assemble::{self, RunData};
use crate::checkpoint;
use crate::checkpoint::resume::Resumed;
use crate::config::RunConfig;
use crate::device::{self, DeviceChoice, OpenDevice};
use crate::error::TrainError;
use crate::experiment::link;
use crate::forecast::Watch;
use crate::launch::{self, on_ranks};
use crate::memory_plan::MemoryPlan;
use crate::operations::{self, Operation, Position};
use crate::plan::grouped;
use crate::run_lock::RunLock;
use crate::samples::{self, Sample};
use crate::state::TrainState;
use crate::step::StepReport;
use crate::stop_signal::StopSignal;
use crate::storage::{Storage, open_storage};
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::memory::{Sizes, human};
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
    /// Let the model write: continuations of the recipe's prompts at each evaluation, and of some at
    /// the end.
    pub samples: bool,
    /// Raised to make the run save and end after the step at hand.
    pub stop: StopSignal,
    /// Where checkpoints lie instead of the recipe's place.
    pub storage: Option<Arc<dyn Storage>>,
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
    /// The model on each suite of the recipe, by name; none of a run that was stopped.
    pub suites: Vec<(String, EvalReport)>,
    /// The bigram on the held-out text, if it was counted.
    pub bigram: Option<EvalReport>,
    /// Continuations that the model wrote, if asked for.
    pub samples: Vec<Sample>,
    /// Seconds in training steps.
    pub train_secs: f64,
    /// Steps taken in this attempt.
    pub steps_taken: u64,
    /// Steps of the whole run that were skipped because they were not finite.
    pub skipped: u64,
    /// The metric log.
    pub log: PathBuf,
    /// Path or address of the last checkpoint, if there is one.
    pub checkpoint: Option<String>,
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
/// folder that holds another run, or one that another process trains. Later: a step that is not
/// finite, a last checkpoint that cannot be written. Of several ranks, the first cause, with the
/// rank's number.
pub fn run(config: &RunConfig, options: &RunOptions) -> Result<RunSummary, TrainError> {
    config.validate()?;
    let board = Board::default();
    let _watchdog = Watchdog::start(&board, Limits::of(config));
    on_ranks(config, |world| run_rank(config, options, world, &board))
}

/// One rank of `config` over a transport of the caller's, on all of whose ranks it is called;
/// [`run`] does so over threads or MPI. The rank shows on `board` what it is doing.
///
/// # Errors
/// As [`run`], and those of this rank alone.
pub fn run_over(
    config: &RunConfig,
    options: &RunOptions,
    transport: Arc<dyn Transport>,
    board: &Board,
) -> Result<RunSummary, TrainError> {
    config.validate()?;
    run_rank(config, options, &launch::meet(config, transport)?, board)
}

fn run_rank(
    config: &RunConfig,
    options: &RunOptions,
    world: &World,
    board: &Board,
) -> Result<RunSummary, TrainError> {
    board.witness(world.rank(), || assemble_and_train(config, options, world, board))
}

fn assemble_and_train(
    config: &RunConfig,
    options: &RunOptions,
    world: &World,
    board: &Board,
) -> Result<RunSummary, TrainError> {
    let pulse = board.enrol(world.rank());
    let device = device::open(options.device)?;
    device::require_types(config, &device)?;
    let storage = match &options.storage {
        Some(storage) => storage.clone(),
        None => open_storage(config, &options.out)?,
    };
    if world.is_first() && !options.resume {
        refuse_to_overwrite(&*storage, options)?;
    }
    if world.is_first() {
        link::check_start(config, &options.out)?;
    }
    let watch = if world.is_first() { Watch::open(config, &options.out)? } else { None };
    let mut data = assemble::data_of_rank(config, world)?;
    samples::check(config, &data.tokenizer)?;
    watch.as_ref().map_or(Ok(()), |watch| watch.require_data(&data))?;
    let _lock = world.is_first().then(|| RunLock::take(&options.out)).transpose()?;
    let operations = operations::of_all_ranks(&options.out, world)?;
    let Resumed { state, plan, from, .. } =
        state_to_begin_with(config, &operations, options, (&storage, &data), world, &device)?;
    // That of a parent lies elsewhere.
    let resumed_from = from.filter(|from| from.parent == plan.parent).map(|from| from.step);
    data.rows = Arc::new(assemble::rows(&plan, data.rows.store().clone())?);
    let end = end_of(&plan, options)?;
    if plan.checkpoint.enabled {
        let rehearsal = checkpoint::rehearse(&*storage, 1, world)?;
        if world.is_first() {
            println!("{rehearsal}");
        }
    }
    if world.is_first() {
        if options.resume && state.step == 0 {
            println!("no whole checkpoint in {}: starting from zero", storage.locate(""));
        }
        println!("device: {}", device.name);
        if state.step >= end {
            println!("no step to take: the run ends at step {end}");
        }
        describe(&plan, &data, &state);
        describe_saving(&plan);
        write_identity(config, options, &state)?;
    }
    let lost_openings = operations::lost_openings(config, &operations, &plan);
    let assembled = Assembled {
        device,
        data,
        state,
        storage,
        resumed_from,
        lost_openings,
        watch,
        pulse,
        board,
    };
    TrainingLoop::new(plan, options, world, assembled, end)?.run()
}

/// The state and the plan of the newest whole checkpoint, of a parent, or of a run's start.
fn state_to_begin_with(
    config: &RunConfig,
    operations: &[Operation],
    options: &RunOptions,
    (storage, data): (&Arc<dyn Storage>, &RunData),
    world: &World,
    device: &OpenDevice,
) -> Result<Resumed, TrainError> {
    let plan_at = |at: Position, opened: &[u64]| {
        let plan = operations::plan_of_state(config, operations, opened)?;
        let rows = assemble::rows(&plan, data.rows.store().clone())?;
        let consumed = assemble::consumed(&rows, plan.rows_taken(at.batches));
        Ok((plan, consumed))
    };
    let run = checkpoint::Run::new(storage, config, &data.digest);
    checkpoint::resume::resume(&run, &plan_at, &options.out, world, &device.device)
}

/// The recipe that the run begins with and its optimizer table into the run's folder. What a later
/// attempt changes of the recipe, where it may, is in the history.
fn write_identity(
    config: &RunConfig,
    options: &RunOptions,
    state: &TrainState,
) -> Result<(), TrainError> {
    let recipe = options.out.join(checkpoint::RECIPE);
    std::fs::create_dir_all(&options.out).map_err(TrainError::io("create", &options.out))?;
    if !recipe.exists() {
        std::fs::write(&recipe, crate::recipe::to_toml(config))
            .map_err(TrainError::io("write", &recipe))?;
    }
    let table = options.out.join("optimizer_table.txt");
    std::fs::write(&table, state.optimizer.table().to_string())
        .map_err(TrainError::io("write", &table))
}

fn end_of(config: &RunConfig, options: &RunOptions) -> Result<u64, TrainError> {
    let horizon = config.schedule.horizon();
    match options.stop_after {
        Some(steps) if steps > horizon => {
            let rule = format!(
                "at most {horizon}, the horizon of the schedule; raise that to train longer"
            );
            Err(TrainError::config("--steps", steps, rule))
        }
        stop => Ok(stop.unwrap_or(horizon)),
    }
}

/// Without `--resume` a run starts in a folder that holds none.
fn refuse_to_overwrite(storage: &dyn Storage, options: &RunOptions) -> Result<(), TrainError> {
    let found = checkpoint::newest(storage, None)?;
    let holds = match &found.newest {
        Some(manifest) => {
            format!("a run at step {} (checkpoints: {})", manifest.step, storage.locate(""))
        }
        None if !found.rejected.is_empty() || options.out.join(LOG_FILE).exists() => {
            "a run without a checkpoint".to_owned()
        }
        None => return Ok(()),
    };
    let advice = "go on with --resume or choose another --out";
    Err(TrainError::checkpoint(&options.out, format!("the folder holds {holds}; {advice}")))
}

/// What saving takes beside the state.
fn describe_saving(config: &RunConfig) {
    if !config.checkpoint.enabled {
        println!("checkpoints: none");
        return;
    }
    let how = if config.checkpoint.background { "beside training" } else { "between steps" };
    println!("saving {how} takes up to {} of a rank", human(MemoryPlan::new(config).saving));
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
