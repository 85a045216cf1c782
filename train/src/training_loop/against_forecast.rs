//! What a run says of itself beside the forecast that its recipe names.

use super::TrainingLoop;
use crate::forecast::Status;
use crate::telemetry::Metrics;

impl TrainingLoop<'_> {
    /// Adds to the metrics of an evaluation how they stand beside the forecast, where this is one of its
    /// points.
    pub(super) fn against_forecast(&self, metrics: &mut Metrics) -> Option<Status> {
        let horizon = self.config.schedule.horizon();
        let watch = self.watch.as_ref()?;
        let status = watch.after_evaluation(self.state.step, horizon, metrics)?;
        metrics.extend(status.metrics());
        Some(status)
    }

    /// Says it, and tells if an alarm turns.
    pub(super) fn say_forecast(&mut self, status: Option<Status>) {
        let (Some(watch), Some(status)) = (&self.watch, status) else { return };
        self.record.line(&status.to_string());
        if let Some(peak) = watch.say_peak(&status) {
            self.record.line(&peak);
        }
        if let Some(change) = self.alarms.after_forecast(status.over_forecast()) {
            self.tell(&change);
        }
    }
}
