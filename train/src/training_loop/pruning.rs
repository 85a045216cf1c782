//! Old checkpoints go when a new one has been verified, beside training and on the first rank alone.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::TrainingLoop;
use crate::checkpoint::retention::Pruned;
use crate::checkpoint::{prune, verify};
use crate::config::CheckpointConfig;
use crate::error::TrainError;
use crate::storage::Storage;

/// The pruning that is under way, if any.
#[derive(Debug, Default)]
pub(super) struct Pruner(Option<JoinHandle<Pruned>>);

impl Pruner {
    /// Verifies the checkpoint of `step` and lets go what it replaces. One that is under way already
    /// is enough: whatever it leaves goes with the next save.
    fn begin(&mut self, storage: &Arc<dyn Storage>, config: &CheckpointConfig, step: u64) {
        if config.keep_last == 0 || self.0.is_some() {
            return;
        }
        let (storage, config) = (storage.clone(), config.clone());
        let thread = std::thread::Builder::new().name("fulmar-prune".to_owned());
        // A system without threads keeps its checkpoints.
        self.0 = thread.spawn(move || verify_and_prune(&*storage, &config, step)).ok();
    }
}

fn verify_and_prune(storage: &dyn Storage, config: &CheckpointConfig, step: u64) -> Pruned {
    let problems = match verify::verify(storage, step) {
        Ok((_, problems)) if problems.is_empty() => return prune(storage, config, step),
        Ok((_, problems)) => problems,
        Err(problem) => vec![problem],
    };
    let chain = |problem: &TrainError| format!("not whole, nothing is pruned: {}", problem.chain());
    Pruned { problems: problems.iter().take(1).map(chain).collect(), ..Pruned::default() }
}

impl TrainingLoop<'_> {
    /// Begins to prune behind the checkpoint of `step`.
    pub(super) fn prune_behind(&mut self, step: u64) {
        if self.world.is_first() {
            self.pruner.begin(self.saver.storage(), &self.config.checkpoint, step);
        }
    }

    /// Tells what pruning came to, if it has ended; waits for it if told to.
    pub(super) fn end_pruning(&mut self, wait: bool) {
        if !self.pruner.0.as_ref().is_some_and(|thread| wait || thread.is_finished()) {
            return;
        }
        let thread = self.pruner.0.take().expect("one is under way");
        let panicked = |_| Pruned {
            problems: vec!["the thread that prunes panicked".to_owned()],
            ..Pruned::default()
        };
        let pruned = thread.join().unwrap_or_else(panicked);
        match pruned.event(self.state.step, self.record.attempt()) {
            Some(event) if pruned.problems.is_empty() => self.record.quiet_event(&event),
            Some(event) => self.record.event(&event),
            None => {}
        }
    }
}
