//! What the loop does when a step is not sound, or the run is asked to stop.

use fulmar_data::Batch;

use super::TrainingLoop;
use super::between_steps::Tidings;
use crate::error::TrainError;
use crate::history::Event;
use crate::step::StepReport;

impl TrainingLoop<'_> {
    /// Whether all ranks stop now, because one was asked to.
    pub(super) fn asked_to_stop(&mut self, all: &[Tidings]) -> Result<bool, TrainError> {
        let Some(rank) = all.iter().position(|tidings| tidings.stop) else { return Ok(false) };
        let text = format!("rank {rank} was asked to stop by a signal");
        let event = Event::now(self.state.step, self.record.attempt(), "stopped", text);
        self.record.event(&event)?;
        Ok(true)
    }

    /// Counts a batch that was left out; too many end the run.
    pub(super) fn skip(&mut self, report: &StepReport, batch: &Batch) -> Result<(), TrainError> {
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
}
