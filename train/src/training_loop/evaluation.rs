//! What a run looks at beside its steps: held-out loss, the bigram, samples.

use fulmar_data::Batch;
use fulmar_ep::transport::Group;
use fulmar_eval::{EvalReport, ModelScorer, TokenBigram};

use super::TrainingLoop;
use crate::error::TrainError;
use crate::evaluate;
use crate::samples::{self, Sample};
use crate::telemetry::loads::Loads;
use crate::telemetry::memory::Sizes;
use crate::telemetry::names;

/// Largest number of training tokens whose pairs are counted for the bigram beside the model.
const MAX_BIGRAM_TOKENS: u64 = 50_000_000;

impl TrainingLoop<'_> {
    /// The model on the first `max_rows` held-out rows, 0 for all, without drops.
    pub(super) fn evaluate(&mut self, max_rows: usize) -> Result<EvalReport, TrainError> {
        let model = self.state.evaluation_model(&self.balancing);
        let scorer = ModelScorer::new(&model, &self.dropless, &self.device.device);
        let (rows, ranks) = (self.config.evaluation.batch_rows, &self.world.all);
        let pulse = self.pulse.clone();
        let nats = |batch: &Batch| {
            pulse.beat();
            scorer.nats(batch)
        };
        let report = fulmar_eval::evaluate(&self.data.heldout, rows, max_rows, ranks, nats)?;
        let mut metrics = evaluate::metrics(evaluate::DROPLESS, &report);
        metrics.extend(names::of_memory(&Sizes::of(&self.state)));
        let beside_forecast = self.against_forecast(&mut metrics);
        self.record.write(self.state.step, &metrics);
        self.log_loads();
        self.record.line(&format!(
            "held-out at step {}: loss {:.4}, {:.4} bits per byte (macro {:.4})",
            self.state.step,
            report.total().loss(),
            report.total().bits_per_byte(),
            report.macro_bits_per_byte(),
        ));
        self.say_forecast(beside_forecast);
        // The last one, over all rows, does not compare with others over some.
        if max_rows == self.config.evaluation.max_rows {
            let change = self.alarms.after_evaluation(report.macro_loss());
            change.iter().for_each(|change| self.tell(change));
        }
        Ok(report)
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
