//! The loop, with its hooks in a fixed order: step, log, evaluation, checkpoint.

mod between_steps;
mod evaluation;
mod guarding;
mod in_force;
mod pruning;
mod reporting;
mod saving;
mod started;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fulmar_data::Batch;
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_model::moe::quantile::QuantileBalancing;

use crate::assemble::RunData;

use crate::compare_weights::compare_weights;
use crate::config::RunConfig;
use crate::device::OpenDevice;
use crate::error::TrainError;
use crate::run::{RunOptions, RunSummary};
use crate::state::{self, TrainState};
use crate::step::{StepContext, StepReport};
use crate::storage::Storage;
use crate::telemetry::console::Progress;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::{Console, Record};
use pruning::Pruner;
use saving::Saver;

/// What a rank has before its first step.
pub(crate) struct Assembled {
    pub(crate) device: OpenDevice,
    pub(crate) data: RunData,
    pub(crate) state: TrainState,
    /// Where checkpoints lie, and the step of the one that the run goes on from.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) resumed_from: Option<u64>,
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
    losses: Vec<(u64, f64)>,
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
        Assembled { device, data, state, storage, resumed_from }: Assembled,
        end: u64,
    ) -> Result<Self, TrainError> {
        let saver = Saver::new(storage, &config, resumed_from);
        let num_experts = config.model.num_experts;
        let exchange = *config.parallel.dispatch_at(state.step);
        let record = if world.is_first() {
            Record::open(&options.out, Console::new(state.step, end, config.log.every))?
        } else {
            Record::silent()
        };
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
            losses: Vec::new(),
            last: None,
            train_secs: 0.0,
            steps_taken: 0,
            skipped: 0,
            saver,
            pruner: Pruner::default(),
        };
        training.take_shape()?;
        training.record_start(resumed_from)?;
        Ok(training)
    }

    /// Steps to the end, then evaluates and sums up.
    pub(crate) fn run(mut self) -> Result<RunSummary, TrainError> {
        let mut batches = self.batches()?;
        while self.state.step < self.end {
            if self.open_context_stage()? {
                batches = self.batches()?;
            }
            let batch = batches.next().expect("the loader ends with an error")?;
            let updated = self.step(&batch)?;
            let tidings = self.tidings()?;
            self.end_background_save(&tidings)?;
            self.end_pruning(false)?;
            if self.asked_to_stop(&tidings)? {
                break;
            }
            if !updated || self.state.step == self.end {
                continue;
            }
            if due(self.state.step, self.config.parallel.compare_weights_every) {
                compare_weights(&self.state, self.world)?;
            }
            if due(self.state.step, self.config.evaluation.every) {
                self.evaluate(self.config.evaluation.max_rows)?;
            }
            self.save_if_due(&tidings)?;
        }
        self.end_pruning(true)?;
        self.last_save()?;
        self.end_pruning(true)?;
        compare_weights(&self.state, self.world)?;
        self.record.finish();
        let heldout = self.evaluate(0)?;
        let bigram = if self.world.is_first() { self.bigram()? } else { None };
        let samples = if self.options.samples { self.samples()? } else { Vec::new() };
        Ok(RunSummary {
            first_rank: self.world.is_first(),
            samples,
            log: self.out.join(LOG_FILE),
            state: self.state,
            data: self.data,
            device: self.device,
            losses: self.losses,
            last: self.last,
            heldout,
            bigram,
            train_secs: self.train_secs,
            steps_taken: self.steps_taken,
            skipped: self.skipped,
            checkpoint: self.saver.place(),
        })
    }

    /// One step with its log line; false if it was skipped.
    fn step(&mut self, batch: &Batch) -> Result<bool, TrainError> {
        self.switch_exchange()?;
        let schedule = &self.config.schedule;
        let rates = self.state.optimizer.rates(schedule, self.state.step);
        let (world, device) = (self.world, &self.device.device);
        let context =
            StepContext::new(&self.shape, world, &self.dispatcher, &self.balancing, device);
        let started = Instant::now();
        let report = self.state.step(batch, rates, &context)?;
        let secs = started.elapsed().as_secs_f64();
        self.state.since_boundary.add(&report);
        self.log_step(&report, rates, batch, secs)?;
        if !report.updated {
            self.skip(&report, batch)?;
            return Ok(false);
        }
        self.train_secs += secs;
        self.steps_taken += 1;
        self.losses.push((self.state.step, report.loss));
        let left = (self.end - self.state.step) as f64;
        self.record.step(Progress {
            step: self.state.step,
            loss: report.loss,
            grad_norm: report.grad_norm,
            tokens_per_second: self.config.tokens_per_step() as f64 / secs,
            seconds_left: left * self.train_secs / self.steps_taken as f64,
        });
        self.last = Some(report);
        Ok(true)
    }
}

/// Whether something that happens every `every` steps happens now; 0 is never.
fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
