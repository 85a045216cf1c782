//! What a step says about itself.

use fulmar_data::Batch;

use super::TrainingLoop;
use crate::error::TrainError;
use crate::optim::StepRates;
use crate::step::{StepReport, StepSeconds};
use crate::telemetry::{Metrics, names};

impl TrainingLoop<'_> {
    /// Writes the metrics of a step that took `secs`.
    pub(super) fn log_step(
        &mut self,
        report: &StepReport,
        rates: StepRates,
        batch: &Batch,
        secs: f64,
    ) -> Result<(), TrainError> {
        let mut metrics = names::of_step(report, rates, &self.config);
        metrics.insert("data/digest".to_owned(), format!("{:016x}", batch.digest()).into());
        metrics.insert(names::BATCHES.to_owned(), self.state.batches.into());
        metrics.insert("data/seq_len".to_owned(), batch.seq_len.into());
        let stage = self.data.rows.plan().stage_of(batch.first_row);
        metrics.insert("mixture/stage".to_owned(), stage.into());
        metrics.insert("moe/exchange".to_owned(), self.exchange.name().into());
        metrics.insert("optim/skipped_step".to_owned(), u64::from(!report.updated).into());
        self.report_time(&mut metrics, secs, report.seconds);
        self.record.write(self.state.step, &metrics)
    }

    fn report_time(&self, metrics: &mut Metrics, secs: f64, parts: StepSeconds) {
        let tokens = self.config.tokens_per_step();
        let flops = self.shape.model.step_flops(tokens);
        for (name, value) in [
            (names::DURATION, secs),
            ("throughput/forward_backward_duration", parts.forward_backward),
            ("throughput/update_duration", parts.update),
            (names::TOKENS_PER_SECOND, tokens as f64 / secs),
            ("throughput/gflops_per_second", flops / secs / 1e9),
        ] {
            metrics.insert(name.to_owned(), names::number(value));
        }
    }
}
