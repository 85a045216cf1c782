//! The loop, with its hooks in a fixed order: step, log, evaluation, checkpoint.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fulmar_data::{Batch, Loader};
use fulmar_ep::transport::Group;
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_eval::{EvalReport, ModelScorer, TokenBigram, evaluate};
use fulmar_model::moe::quantile::QuantileBalancing;

use crate::assemble::RunData;
use crate::checkpoint;
use crate::compare_weights::compare_weights;
use crate::config::RunConfig;
use crate::device::OpenDevice;
use crate::error::TrainError;
use crate::run::{RunOptions, RunSummary};
use crate::samples::{self, Sample};
use crate::state::{self, TrainState};
use crate::step::{StepContext, StepReport};
use crate::telemetry::console::Progress;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::{Console, Metrics, Record, names};

/// Largest number of training tokens whose pairs are counted for the bigram beside the model.
const MAX_BIGRAM_TOKENS: u64 = 50_000_000;

/// What a rank has before its first step.
pub(crate) struct Assembled {
    pub(crate) device: OpenDevice,
    pub(crate) data: RunData,
    pub(crate) state: TrainState,
}

/// A rank of a run between its first and its last step.
pub(crate) struct TrainingLoop<'a> {
    config: &'a RunConfig,
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
    saved: Option<PathBuf>,
}

impl<'a> TrainingLoop<'a> {
    pub(crate) fn new(
        config: &'a RunConfig,
        options: &'a RunOptions,
        world: &'a World,
        Assembled { device, data, state }: Assembled,
        end: u64,
    ) -> Result<Self, TrainError> {
        let num_experts = config.model.num_experts;
        let exchange = *config.parallel.dispatch_at(state.step);
        let record = if world.is_first() {
            Record::open(&options.out, Console::new(state.step, end, config.log.every))?
        } else {
            Record::silent()
        };
        Ok(Self {
            out: &options.out,
            record,
            dispatcher: Dispatcher::new(&exchange, num_experts, &world.expert)?,
            dropless: Dispatcher::dropless(num_experts, &world.expert)?,
            exchange,
            balancing: state::balancing(config),
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
            saved: None,
        })
    }

    /// Steps to the end, then evaluates and sums up.
    pub(crate) fn run(mut self) -> Result<RunSummary, TrainError> {
        let rows = self.data.rows.clone();
        let mut batches = Loader::new(rows, self.config.batch.rows, self.state.batches)?;
        while self.state.step < self.end {
            let batch = batches.next().expect("the loader ends with an error")?;
            let updated = self.step(&batch)?;
            if !updated || self.state.step == self.end {
                continue;
            }
            if due(self.state.step, self.config.parallel.compare_weights_every) {
                compare_weights(&self.state, self.world)?;
            }
            if due(self.state.step, self.config.evaluation.every) {
                self.evaluate(self.config.evaluation.max_rows)?;
            }
            if due(self.state.step, self.config.checkpoint.every) {
                self.save()?;
            }
        }
        self.save()?;
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
            checkpoint: self.saved,
        })
    }

    /// One step with its log line; false if it was skipped.
    fn step(&mut self, batch: &Batch) -> Result<bool, TrainError> {
        self.switch_exchange()?;
        let schedule = &self.config.schedule;
        let factor = schedule.factor(self.state.step);
        let progress = self.state.step as f64 / schedule.steps as f64;
        let rates = self.state.optimizer.rates(factor, progress);
        let (world, device) = (self.world, &self.device.device);
        let context =
            StepContext::new(self.config, world, &self.dispatcher, &self.balancing, device);
        let started = Instant::now();
        let report = self.state.step(batch, rates, &context)?;
        let secs = started.elapsed().as_secs_f64();
        let mut metrics = names::of_step(&report, rates, self.config);
        metrics.insert("data/digest".to_owned(), format!("{:016x}", batch.digest()).into());
        let stage = self.data.rows.plan().stage_of(batch.first_row);
        metrics.insert("mixture/stage".to_owned(), stage.into());
        metrics.insert("moe/exchange".to_owned(), self.exchange.name().into());
        metrics.insert("optim/skipped_step".to_owned(), u64::from(!report.updated).into());
        self.report_time(&mut metrics, secs);
        self.record.write(self.state.step, &metrics)?;
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

    /// Takes the exchange that the recipe names for this step; the state does not depend on it.
    fn switch_exchange(&mut self) -> Result<(), TrainError> {
        let exchange = *self.config.parallel.dispatch_at(self.state.step);
        if exchange == self.exchange {
            return Ok(());
        }
        let (before, after) = (self.exchange.name(), exchange.name());
        let num_experts = self.config.model.num_experts;
        self.dispatcher = Dispatcher::new(&exchange, num_experts, &self.world.expert)?;
        self.exchange = exchange;
        self.record.line(&format!("step {}: exchange {before} -> {after}", self.state.step));
        Ok(())
    }

    fn report_time(&self, metrics: &mut Metrics, secs: f64) {
        let tokens = self.config.tokens_per_step();
        let flops = self.config.model.step_flops(tokens);
        for (name, value) in [
            (names::DURATION, secs),
            (names::TOKENS_PER_SECOND, tokens as f64 / secs),
            ("throughput/gflops_per_second", flops / secs / 1e9),
        ] {
            metrics.insert(name.to_owned(), names::number(value));
        }
    }

    fn skip(&mut self, report: &StepReport, batch: &Batch) -> Result<(), TrainError> {
        self.skipped += 1;
        let step = self.state.step;
        let error = TrainError::NotFinite {
            step,
            loss: report.loss,
            grad_norm: report.grad_norm,
            digest: batch.digest(),
        };
        if self.skipped > self.config.guard.max_skipped_steps {
            return Err(error);
        }
        self.record.line(&format!("skipped: {error}"));
        Ok(())
    }

    fn evaluate(&mut self, max_rows: usize) -> Result<EvalReport, TrainError> {
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &self.dropless, &self.device.device);
        let (rows, ranks) = (self.config.evaluation.batch_rows, &self.world.all);
        let nats = |batch: &Batch| scorer.nats(batch);
        let report = evaluate(&self.data.heldout, rows, max_rows, ranks, nats)?;
        let mut metrics = Metrics::new();
        metrics.insert("eval/heldout/loss".to_owned(), names::number(report.total().loss()));
        metrics.insert("eval/heldout/macro_loss".to_owned(), names::number(report.macro_loss()));
        metrics
            .insert("eval/heldout/bpb".to_owned(), names::number(report.total().bits_per_byte()));
        let macro_bpb = names::number(report.macro_bits_per_byte());
        metrics.insert("eval/heldout/macro_bpb".to_owned(), macro_bpb);
        for (domain, tally) in &report.domains {
            let name = |metric| format!("eval/heldout/{domain}/{metric}");
            metrics.insert(name("loss"), names::number(tally.loss()));
            metrics.insert(name("bpb"), names::number(tally.bits_per_byte()));
        }
        metrics
            .insert("eval/heldout/partial_documents".to_owned(), report.partial_documents.into());
        self.record.write(self.state.step, &metrics)?;
        self.record.line(&format!(
            "held-out at step {}: loss {:.4}, {:.4} bits per byte (macro {:.4})",
            self.state.step,
            report.total().loss(),
            report.total().bits_per_byte(),
            report.macro_bits_per_byte(),
        ));
        Ok(report)
    }

    /// The same held-out figures of a bigram counted on the rows that the model was trained on.
    fn bigram(&self) -> Result<Option<EvalReport>, TrainError> {
        let rows = self.state.batches * self.config.batch.rows;
        let tokens = rows * self.config.model.max_seq_len as u64;
        if !self.config.evaluation.bigram || tokens > MAX_BIGRAM_TOKENS || tokens == 0 {
            return Ok(None);
        }
        let mut bigram = TokenBigram::new(self.config.model.vocab_size);
        for start in (0..rows).step_by(256) {
            bigram.count(&self.data.rows.batch(start..rows.min(start + 256)));
        }
        let batch_rows = self.config.evaluation.batch_rows;
        let nats = |batch: &Batch| Ok(bigram.nats(batch));
        Ok(Some(evaluate(&self.data.heldout, batch_rows, 0, &Group::solo(), nats)?))
    }

    fn samples(&self) -> Result<Vec<Sample>, TrainError> {
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &self.dropless, &self.device.device);
        samples::write(self.config, &self.data, &scorer)
    }

    fn save(&mut self) -> Result<(), TrainError> {
        if !self.config.checkpoint.enabled {
            return Ok(());
        }
        let folder = checkpoint::step_folder(self.out, self.state.step);
        let whole = self.world.is_first()
            && checkpoint::Manifest::read(&folder)
                .and_then(|manifest| manifest.verify(&folder))
                .is_ok();
        let whole = self.world.all.sum_u64("already saved", &[u64::from(whole)])?[0] > 0;
        if !whole {
            let run = checkpoint::save::Run {
                folder: self.out,
                config: self.config,
                data: &self.data.digest,
            };
            checkpoint::save(&run, &self.state, self.world)?;
        }
        self.saved = Some(folder);
        Ok(())
    }
}

/// Whether something that happens every `every` steps happens now; 0 is never.
fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
