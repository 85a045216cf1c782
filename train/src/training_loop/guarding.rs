//! What the loop does when a step is not sound, or the run is asked to stop.

use fulmar_data::Batch;

use super::TrainingLoop;
use super::between_steps::Tidings;
use super::left_out;
use crate::error::TrainError;
use crate::guard::{LEFT_OUT, OnNotFinite};
use crate::history::Event;
use crate::step::StepReport;

impl TrainingLoop<'_> {
    /// Whether all ranks stop now, because one was asked to.
    pub(super) fn asked_to_stop(&mut self, all: &[Tidings]) -> Result<bool, TrainError> {
        let Some(rank) = all.iter().position(|tidings| tidings.stop) else { return Ok(false) };
        let text = format!("rank {rank} was asked to stop by a signal");
        self.record.event(&Event::now(self.state.step, self.record.attempt(), "stopped", text));
        Ok(true)
    }

    /// Counts a batch that was left out because its step was not finite; one too many ends the run.
    /// Every rank has the same loss and norm, so all decide the same.
    pub(super) fn skip(&mut self, report: &StepReport, batch: &Batch) -> Result<(), TrainError> {
        self.skipped += 1;
        let (step, digest) = (self.state.step, batch.digest());
        let (loss, grad_norm) = (report.loss, report.grad_norm);
        let error = TrainError::NotFinite { step, loss, grad_norm, digest };
        let guard = &self.config.guard;
        let ends =
            guard.on_not_finite == OnNotFinite::Stop || self.skipped > guard.max_skipped_steps;
        let event =
            Event::now(step, self.record.attempt(), left_out::NOT_FINITE, error.to_string());
        let event = event.with("batch", self.state.batches - 1).with("ended", ends);
        self.record.quiet_event(&event.with("digest", format!("{digest:016x}")));
        if ends {
            self.record.flush();
            return Err(error);
        }
        self.record.line(&format!("skipped: {error}"));
        Ok(())
    }

    /// Passes over the batches that were named to be left out, on every rank the same.
    pub(super) fn leave_out(&mut self, batch: &Batch) -> bool {
        let number = self.state.batches;
        if !self.left_out.contains(&number) {
            return false;
        }
        let text = format!("batch {number} is left out, as was asked for");
        let event = Event::now(self.state.step, self.record.attempt(), LEFT_OUT, text);
        let event = event.with("batch", number);
        self.record.event(&event.with("digest", format!("{:016x}", batch.digest())));
        self.state.batches += 1;
        true
    }
}
