//! What the history keeps of each start of a run: from where, by which plan, on what.

use super::TrainingLoop;
use crate::history::{Event, STARTED};
use crate::recipe;

impl TrainingLoop<'_> {
    /// Records the start of this attempt, with the whole plan in force.
    pub(super) fn record_start(&mut self, resumed_from: Option<u64>) {
        let text = match (resumed_from, &self.config.parent) {
            (Some(step), _) => format!("resumed from step {step}"),
            (None, Some(parent)) => {
                format!("branched off from {} at step {}", parent.run.display(), parent.step)
            }
            (None, None) => "from the first weights".to_owned(),
        };
        let parallel = &self.config.parallel;
        let event = Event::now(self.state.step, self.record.attempt(), STARTED, text)
            .with("batches", self.state.batches)
            .with("release", env!("CARGO_PKG_VERSION"))
            .with("device", self.device.name.clone())
            .with("replicas", parallel.replicas)
            .with("shards", parallel.shards)
            .with("recipe_digest", self.config.digest())
            .with("optimizer_table", self.state.optimizer.table().digest())
            .with("data", self.data.digest.clone())
            .with("recipe", recipe::to_toml(&self.config));
        self.record.quiet_event(&event);
    }
}
