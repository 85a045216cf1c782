//! The loop, with its hooks in a fixed order: step, log, evaluation, checkpoint.

mod against_forecast;
mod between_steps;
mod evaluation;
mod guarding;
mod in_force;
mod left_out;
mod pruning;
mod reporting;
mod saving;
mod started;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fulmar_data::Batch;
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_eval::EvalReport;
use fulmar_model::moe::quantile::QuantileBalancing;

use crate::alarms::Alarms;
use crate::assemble::RunData;
use crate::compare_weights::compare_weights;
use crate::config::RunConfig;
use crate::device::OpenDevice;
use crate::error::TrainError;
use crate::forecast::Watch;
use crate::operations::Operation;
use crate::run::{RunOptions, RunSummary};
use crate::samples::Sample;
use crate::state::{self, TrainState};
use crate::step::{StepContext, StepReport};
use crate::storage::Storage;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::loads::Loads;
use crate::telemetry::stitch::Curve;
use crate::telemetry::{Console, Peak, Record, names};
use crate::watchdog::{Board, Phase, Pulse, Voice};
use between_steps::Tidings;
use evaluation::Evaluated;
use pruning::Pruner;
use saving::Saver;

/// What a rank has before its first step.
pub(crate) struct Assembled<'a> {
    pub(crate) device: OpenDevice,
    pub(crate) data: RunData,
    pub(crate) state: TrainState,
    /// Where checkpoints lie, and the step of the one that the run goes on from.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) resumed_from: Option<u64>,
    /// Context stages that were open there, of which the history does not know.
    pub(crate) lost_openings: Vec<Operation>,
    /// The forecast that the run is watched against, on the first rank.
    pub(crate) watch: Option<Watch>,
    pub(crate) pulse: Pulse,
    pub(crate) board: &'a Board,
}

/// A rank of a run between its first and its last step.
pub(crate) struct TrainingLoop<'a> {
    /// The plan in force; it changes when a context stage opens.
    config: RunConfig,
    /// The same with the rows of the stage that is open.
    shape: RunConfig,
    options: &'a RunOptions,
    out: &'a Path,
    world: &'a World,
    device: OpenDevice,
    data: RunData,
    state: TrainState,
    end: u64,
    exchange: DispatchConfig,
    dispatcher: Dispatcher,
    dropless: Dispatcher,
    balancing: QuantileBalancing,
    record: Record,
    pulse: Pulse,
    alarms: Alarms,
    watch: Option<Watch>,
    peak: Option<Peak>,
    left_out: BTreeSet<u64>,
    losses: Vec<(u64, f64)>,
    /// Choices of experts since they were last logged.
    loads: Loads,
    last: Option<StepReport>,
    train_secs: f64,
    steps_taken: u64,
    skipped: u64,
    saver: Saver,
    pruner: Pruner,
}

impl<'a> TrainingLoop<'a> {
    pub(crate) fn new(
        config: RunConfig,
        options: &'a RunOptions,
        world: &'a World,
        assembled: Assembled<'_>,
        end: u64,
    ) -> Result<Self, TrainError> {
        let Assembled { device, data, state, storage, resumed_from, .. } = assembled;
        let Assembled { lost_openings, mut watch, pulse, board, .. } = assembled;
        let saver = Saver::new(storage, &config, resumed_from);
        let num_experts = config.model.num_experts;
        let exchange = *config.parallel.dispatch_at(state.step);
        let left_out = left_out::agree(&config.guard, &options.out, world)?;
        let mut alarms = Alarms::new(&config.alarms);
        let (mut record, mut peak) = (Record::silent(), None);
        if world.is_first() {
            remember(&mut alarms, &config, &options.out, state.step)?;
            if let Some(watch) = &mut watch {
                watch.remember(&options.out, state.step)?;
            }
            let console = Console::new(state.step, end, config.log.every);
            record = Record::open(&options.out, console.clone(), config.log.tensorboard)?;
            let (folder, attempt) = (options.out.clone(), record.attempt());
            board.speak_through(Voice { console, folder, attempt });
            peak = Some(Peak::of(&config, &device));
        }
        let skipped = left_out::skipped(&state, &left_out);
        // The first step of others would share the device with what is measured.
        world.all.barrier("start of training")?;
        let mut training = Self {
            out: &options.out,
            record,
            dispatcher: Dispatcher::new(&exchange, num_experts, &world.expert)?,
            dropless: Dispatcher::dropless(num_experts, &world.expert)?,
            exchange,
            balancing: state::balancing(&config),
            shape: config.clone(),
            config,
            options,
            world,
            device,
            data,
            state,
            end,
            pulse,
            alarms,
            watch,
            peak,
            skipped,
            left_out,
            losses: Vec::new(),
            loads: Loads::default(),
            last: None,
            train_secs: 0.0,
            steps_taken: 0,
            saver,
            pruner: Pruner::default(),
        };
        training.take_shape()?;
        training.record_start(resumed_from)?;
        lost_openings.iter().for_each(|opening| training.record_lost(opening));
        Ok(training)
    }

    /// Steps to the end, then evaluates and sums up.
    pub(crate) fn run(mut self) -> Result<RunSummary, TrainError> {
        let mut batches = self.batches()?;
        let mut stopped = false;
        while self.state.step < self.end && !stopped {
            if self.open_context_stage()? {
                batches = self.batches()?;
            }
            self.pulse.begin_step(self.state.step);
            let batch = batches.next().expect("the loader ends with an error")?;
            if self.leave_out(&batch) {
                continue;
            }
            let updated = self.step(&batch)?;
            let tidings = self.tidings()?;
            self.end_background_save(&tidings)?;
            self.end_pruning();
            stopped = self.asked_to_stop(&tidings)?;
            if updated && !stopped && self.state.step < self.end {
                self.after_step(&tidings)?;
            }
        }
        self.say_unopened();
        self.record.flush();
        self.pulse.enter(Phase::Saving);
        self.wait_for_pruning();
        self.last_save()?;
        self.wait_for_pruning();
        self.pulse.enter(Phase::Ending);
        if stopped {
            self.record.finish();
            return Ok(self.summary(stopped, None, None, Vec::new()));
        }
        compare_weights(&self.state, self.world)?;
        self.record.finish();
        self.pulse.enter(Phase::Evaluation);
        let heldout = self.evaluate(0)?;
        self.pulse.enter(Phase::Ending);
        let bigram = if self.world.is_first() { self.bigram()? } else { None };
        let samples = self.samples()?;
        self.record_end();
        Ok(self.summary(stopped, Some(heldout), bigram, samples))
    }

    /// What is due between two steps.
    fn after_step(&mut self, tidings: &[Tidings]) -> Result<(), TrainError> {
        let step = self.state.step;
        if due(step, self.config.parallel.compare_weights_every) {
            compare_weights(&self.state, self.world)?;
        }
        if self.config.evaluation.is_due(step, self.config.schedule.horizon()) {
            self.pulse.enter(Phase::Evaluation);
            self.evaluate(self.config.evaluation.max_rows)?;
            if !self.config.evaluation.prompts.is_empty() {
                self.samples()?;
            }
        }
        self.save_if_due(tidings)?;
        self.pulse.enter(Phase::Hooks);
        Ok(())
    }

    fn summary(
        mut self,
        stopped: bool,
        evaluated: Option<Evaluated>,
        bigram: Option<EvalReport>,
        samples: Vec<Sample>,
    ) -> RunSummary {
        let evaluated = evaluated.map(|Evaluated { heldout, suites }| (heldout, suites));
        let (heldout, suites) = evaluated.unzip();
        self.record.flush();
        for trouble in self.record.troubles() {
            self.record.line(&trouble);
        }
        RunSummary {
            first_rank: self.world.is_first(),
            stopped,
            samples,
            log: self.out.join(LOG_FILE),
            state: self.state,
            data: self.data,
            device: self.device,
            losses: self.losses,
            last: self.last,
            heldout,
            suites: suites.unwrap_or_default(),
            bigram,
            train_secs: self.train_secs,
            steps_taken: self.steps_taken,
            skipped: self.skipped,
            checkpoint: self.saver.place(),
        }
    }

    /// One step with its log line; false if it was skipped.
    fn step(&mut self, batch: &Batch) -> Result<bool, TrainError> {
        self.switch_exchange()?;
        let schedule = &self.config.schedule;
        let rates = self.state.optimizer.rates(schedule, self.state.step);
        let (world, device) = (self.world, &self.device.device);
        let context =
            StepContext::new(&self.shape, world, &self.dispatcher, &self.balancing, device)
                .watched_by(self.pulse.clone());
        let started = Instant::now();
        let report = self.state.step(batch, rates, &context)?;
        let secs = started.elapsed().as_secs_f64();
        self.state.since_boundary.add(&report);
        self.pulse.enter(Phase::Hooks);
        self.log_step(&report, rates, batch, secs)?;
        if !report.updated {
            self.skip(&report, batch)?;
            return Ok(false);
        }
        self.train_secs += secs;
        self.steps_taken += 1;
        self.losses.push((self.state.step, report.loss));
        if let Some(watch) = &mut self.watch {
            watch.after_step(self.state.step, report.grad_norm);
        }
        self.loads.add(&report.layers);
        self.last = Some(report);
        Ok(true)
    }
}

/// Teaches alarms what the log has of earlier attempts until `step`.
fn remember(
    alarms: &mut Alarms,
    config: &RunConfig,
    folder: &Path,
    step: u64,
) -> Result<(), TrainError> {
    let metrics = [(names::LOSS, 1), (names::HELDOUT_LOSS, 0)];
    let [training, heldout] = Curve::read_several(folder, metrics)?;
    alarms.remember(training.points.range(..=step).map(|(_, loss)| *loss));
    // The last one of an attempt is over all rows, and does not compare with others over some.
    if config.evaluation.max_rows == 0 {
        alarms.remember_heldout(heldout.points.range(..=step).map(|(_, loss)| *loss));
    }
    Ok(())
}

/// Whether something that happens every `every` steps happens now; 0 is never.
fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
