//! What a run looks at beside its steps: losses of held-out text and suites, the bigram, samples.

use fulmar_data::{Batch, EvalRows};
use fulmar_ep::transport::Group;
use fulmar_ep::{DispatchConfig, Dispatcher};
use fulmar_eval::suite::{HELDOUT, Mode};
use fulmar_eval::{EvalReport, ModelScorer, TokenBigram};

use super::TrainingLoop;
use crate::error::TrainError;
use crate::evaluate;
use crate::samples::{self, Sample};
use crate::telemetry::loads::Loads;
use crate::telemetry::memory::Sizes;
use crate::telemetry::{Metrics, names};

/// Largest number of training tokens whose pairs are counted for the bigram beside the model.
const MAX_BIGRAM_TOKENS: u64 = 50_000_000;

/// Reports by the name of what was evaluated, the held-out text first.
type Reports = Vec<(String, EvalReport)>;

/// Figures of one evaluation, without drops.
#[derive(Debug)]
pub(super) struct Evaluated {
    /// Of the held-out text.
    pub(super) heldout: EvalReport,
    /// Of each suite, by name.
    pub(super) suites: Reports,
}

impl TrainingLoop<'_> {
    /// The model on the first `max_rows` held-out rows, 0 for all, and on the whole of each suite:
    /// without drops, and with the exchange of training where the recipe asks for it.
    pub(super) fn evaluate(&mut self, max_rows: usize) -> Result<Evaluated, TrainError> {
        let mut reports = self.dropless_reports(max_rows)?;
        let mut metrics = named(Mode::Dropless, &reports);
        if self.config.evaluation.as_trained {
            let as_trained = self.as_trained_reports(max_rows, &reports)?;
            metrics.extend(named(Mode::AsTrained, &as_trained));
        }
        metrics.extend(names::of_memory(&Sizes::of(&self.state)));
        let beside_forecast = self.against_forecast(&mut metrics);
        self.record.write(self.state.step, &metrics);
        self.log_loads();
        for (name, report) in &reports {
            self.record.line(&format!(
                "{} at step {}: loss {:.4}, {:.4} bits per byte (macro {:.4})",
                if name == HELDOUT { "held-out" } else { name },
                self.state.step,
                report.total().loss(),
                report.total().bits_per_byte(),
                report.macro_bits_per_byte(),
            ));
        }
        self.say_forecast(beside_forecast);
        let (_, heldout) = reports.remove(0);
        // The last one, over all rows, does not compare with others over some.
        if max_rows == self.config.evaluation.max_rows {
            let change = self.alarms.after_evaluation(heldout.macro_loss());
            change.iter().for_each(|change| self.tell(change));
        }
        Ok(Evaluated { heldout, suites: reports })
    }

    fn dropless_reports(&self, max_rows: usize) -> Result<Reports, TrainError> {
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &self.dropless, &self.device.device);
        let nats = |batch: &Batch| {
            self.pulse.beat();
            scorer.nats(batch)
        };
        let (batch_rows, ranks) = (self.config.evaluation.batch_rows, &self.world.all);
        let report_of = |(name, rows, max_rows): (&str, &EvalRows, usize)| {
            let report = fulmar_eval::evaluate(rows, batch_rows, max_rows, ranks, nats)?;
            Ok((name.to_owned(), report))
        };
        self.texts(max_rows).map(report_of).collect()
    }

    /// The same with the exchange that the plan names for the next step; where nothing is exchanged,
    /// nothing else comes out.
    fn as_trained_reports(
        &self,
        max_rows: usize,
        dropless: &Reports,
    ) -> Result<Reports, TrainError> {
        let exchange = *self.config.parallel.dispatch_at(self.state.step);
        if exchange == DispatchConfig::Local {
            return Ok(dropless.clone());
        }
        let num_experts = self.config.model.num_experts;
        let dispatcher = Dispatcher::new(&exchange, num_experts, &self.world.expert)?;
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &dispatcher, &self.device.device);
        let nats = |batch: &Batch| {
            self.pulse.beat();
            scorer.nats(batch)
        };
        let micro_rows = self.shape.micro_rows() as usize;
        let report_of = |(name, rows, max_rows): (&str, &EvalRows, usize)| {
            let sums = evaluate::score_as_trained(rows, micro_rows, max_rows, self.world, nats)?;
            Ok((name.to_owned(), EvalReport::new(rows, &sums)))
        };
        self.texts(max_rows).map(report_of).collect()
    }

    /// What is evaluated, by name, with the number of rows to take: all of a suite, whose macro mean
    /// is one over all tags.
    fn texts(&self, max_rows: usize) -> impl Iterator<Item = (&str, &EvalRows, usize)> {
        let suites = self.data.suites.iter().map(|suite| (&suite.name[..], &suite.rows, 0));
        std::iter::once((HELDOUT, &self.data.heldout, max_rows)).chain(suites)
    }

    /// How often each expert was chosen since the evaluation before, into a file of its own.
    fn log_loads(&mut self) {
        let loads = std::mem::take(&mut self.loads);
        if loads.updates > 0 {
            let (step, attempt) = (self.state.step, self.record.attempt());
            self.record.write_loads(&Loads { step, attempt, ..loads });
        }
    }

    /// The same held-out figures of a bigram counted on the rows that the model was trained on.
    pub(super) fn bigram(&self) -> Result<Option<EvalReport>, TrainError> {
        let (batches, per_step) = (self.state.batches, self.config.tokens_per_step());
        let tokens = batches * per_step;
        if !self.config.evaluation.bigram || tokens > MAX_BIGRAM_TOKENS || tokens == 0 {
            return Ok(None);
        }
        let mut bigram = TokenBigram::new(self.config.model.vocab_size);
        let plan = self.data.rows.lengths().batches(per_step)?;
        for batch in 0..batches {
            bigram.count(&self.data.rows.batch(plan.rows(batch)));
        }
        let batch_rows = self.config.evaluation.batch_rows;
        let nats = |batch: &Batch| Ok(bigram.nats(batch));
        let solo = Group::solo();
        Ok(Some(fulmar_eval::evaluate(&self.data.heldout, batch_rows, 0, &solo, nats)?))
    }

    /// Continuations of prompts, which the first rank records; none where the run shall write nothing.
    pub(super) fn samples(&self) -> Result<Vec<Sample>, TrainError> {
        if !self.options.samples {
            return Ok(Vec::new());
        }
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &self.dropless, &self.device.device);
        let written_by = (self.state.step, self.record.attempt());
        let tokenizer = &self.data.tokenizer;
        let mut before = || self.pulse.beat();
        let samples = samples::write(&self.shape, tokenizer, &scorer, written_by, &mut before)?;
        if self.world.is_first()
            && let Err(error) = samples::record(self.out, &samples)
        {
            self.record.line(&format!("samples are not written: {}", error.chain()));
        }
        Ok(samples)
    }
}

fn named(mode: Mode, reports: &Reports) -> Metrics {
    let metrics_of = |(name, report): &(String, EvalReport)| {
        evaluate::metrics(&evaluate::place(mode, name), report)
    };
    reports.iter().flat_map(metrics_of).collect()
}
