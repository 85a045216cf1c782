//! What the history keeps of each start of a run: from where, by which plan, on what; and of its end.

use super::TrainingLoop;
use crate::error::TrainError;
use crate::experiment::link;
use crate::forecast::FORECAST_DIGEST;
use crate::history::{ENDED, Event, STARTED};
use crate::operations::{Comparison, Operation, Position};
use crate::recipe;
use crate::telemetry::Metrics;

impl TrainingLoop<'_> {
    /// Records the start of this attempt, with the whole plan in force.
    ///
    /// # Errors
    /// If the experiment that the run is made for has been altered meanwhile.
    pub(super) fn record_start(&mut self, resumed_from: Option<u64>) -> Result<(), TrainError> {
        // Other ranks keep no history, and may not see those folders.
        if !self.world.is_first() {
            return Ok(());
        }
        let text = match (resumed_from, &self.config.parent) {
            (Some(step), _) => format!("resumed from step {step}"),
            (None, Some(parent)) => {
                format!("branched off from {} at step {}", parent.run.display(), parent.step)
            }
            (None, None) => "from the first weights".to_owned(),
        };
        let parallel = &self.config.parallel;
        let mut event = Event::now(self.state.step, self.record.attempt(), STARTED, text)
            .with("batches", self.state.batches)
            .with("release", env!("CARGO_PKG_VERSION"))
            .with("device", self.device.name.clone())
            .with("replicas", parallel.replicas)
            .with("shards", parallel.shards)
            .with("recipe_digest", self.config.digest())
            .with("optimizer_table", self.state.optimizer.table().digest())
            .with("data", self.data.digest.clone())
            .with("heldout", self.data.heldout_digest.clone())
            .with("recipe", recipe::to_toml(&self.config));
        if !self.data.suites.is_empty() {
            let suites = self.data.suites.iter();
            let digests = suites.map(|suite| (suite.name.clone(), suite.digest().into()));
            event = event.with("suites", digests.collect::<Metrics>());
        }
        if let Some((folder, seal)) =
            self.config.experiment.as_ref().zip(link::seal_of(&self.config)?)
        {
            let folder = folder.display().to_string();
            event = event.with(link::FOLDER, folder).with(link::SEAL_DIGEST, seal.digest);
        }
        if let Some(watch) = &self.watch {
            event = event.with(FORECAST_DIGEST, watch.registration.digest.clone());
        }
        self.record.quiet_event(&event);
        Ok(())
    }

    /// Records that this attempt has come to its last step, and was evaluated there.
    pub(super) fn record_end(&mut self) {
        let (step, horizon) = (self.state.step, self.config.schedule.horizon());
        let text = format!("after {step} of {horizon} updates");
        self.record.quiet_event(&Event::now(step, self.record.attempt(), ENDED, text));
    }

    /// Records an opening of longer rows once more: a log that could not be written and a kill have
    /// lost it, and the checkpoint knows.
    pub(super) fn record_lost(&mut self, opening: &Operation) {
        let Operation::ContextOpened { stage, at_batch } = *opening else { return };
        let at = Position { step: self.state.step, batches: self.state.batches };
        let (mut before, len) = (self.config.clone(), self.config.context[stage].seq_len);
        before.context[stage].opened_at = None;
        let reason = format!(
            "rows of {len} tokens since batch {at_batch}: the checkpoint knows, the record was lost"
        );
        let change = Comparison::new(&before, &self.config, at);
        self.record.event(&opening.event(at, self.record.attempt(), &reason, &change));
    }
}
