//! What a step says about itself.

use fulmar_data::Batch;

use super::TrainingLoop;
use crate::alarms::{Change, Health};
use crate::error::TrainError;
use crate::history::Event;
use crate::optim::{Norms, StepRates};
use crate::step::StepReport;
use crate::telemetry::StepLine;
use crate::telemetry::console::Progress;

impl TrainingLoop<'_> {
    /// Writes the metrics of a step that took `secs`, tells what alarms they turn, and shows it.
    pub(super) fn log_step(
        &mut self,
        report: &StepReport,
        rates: StepRates,
        batch: &Batch,
        secs: f64,
    ) -> Result<(), TrainError> {
        let step = self.state.step;
        let parameters = self.parameter_norms(report)?;
        if !self.world.is_first() {
            return Ok(());
        }
        let line = StepLine {
            config: &self.shape,
            report,
            rates,
            digest: batch.digest(),
            batches: self.state.batches,
            seq_len: batch.seq_len,
            stage: self.data.rows.plan().stage_of(batch.first_row),
            exchange: self.exchange.name(),
            norms: parameters.as_ref().map(|parameters| [&report.grad_norms, parameters]),
            secs,
            phases: self.pulse.take_seconds(),
            peak: self.peak,
        };
        let (mut metrics, mfu) = (line.metrics(), line.mfu());
        let judged = mfu.filter(|_| self.peak.is_some_and(|peak| peak.accelerator));
        let changes = self.alarms.after_step(&Health::of(report, step, &self.config, judged));
        changes.iter().for_each(|change| self.tell(change));
        metrics.extend(self.alarms.metrics());
        self.record.write(step, &metrics);
        if report.updated {
            self.show(report, secs, mfu);
        }
        Ok(())
    }

    /// An alarm that was raised or cleared, into the history and for people.
    pub(super) fn tell(&mut self, change: &Change) {
        let what = if change.raised { "alarm_raised" } else { "alarm_cleared" };
        let event = Event::now(self.state.step, self.record.attempt(), what, change.to_string());
        let event = event.with("alarm", change.signal.name()).with("value", change.value);
        self.record.event(&event.with("limit", change.limit));
    }

    fn show(&self, report: &StepReport, secs: f64, mfu: Option<f64>) {
        let left = (self.end - self.state.step) as f64;
        self.record.step(Progress {
            step: self.state.step,
            loss: report.loss,
            grad_norm: report.grad_norm,
            tokens_per_second: self.config.tokens_per_step() as f64 / secs,
            mfu,
            drop_fraction: report.counts().drop_fraction(),
            seconds_left: left * (self.train_secs + secs) / (self.steps_taken + 1) as f64,
            alarms: &self.alarms.raised(),
        });
    }

    /// Where they are due; every rank takes part.
    fn parameter_norms(&self, report: &StepReport) -> Result<Option<Norms>, TrainError> {
        if !report.updated || !super::due(self.state.step, self.config.log.norms_every) {
            return Ok(None);
        }
        let (state, world) = (&self.state, self.world);
        Ok(Some(Norms::of_parameters(&state.model, state.optimizer.table(), world)?))
    }
}
