//! Old checkpoints go when a new one has been verified, beside training and on the first rank alone.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::TrainingLoop;
use crate::checkpoint::retention::Pruned;
use crate::checkpoint::{prune, verify};
use crate::config::CheckpointConfig;
use crate::error::TrainError;
use crate::storage::Storage;

/// Threads that verify. They are none of those that a step computes on, which must not wait for a
/// storage.
const VERIFIERS: usize = 2;

/// Between two looks whether a pruning that is waited for has ended.
const LOOK: Duration = Duration::from_millis(10);

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
    let nothing = |problem: String| Pruned {
        problems: vec![format!("nothing is pruned: {problem}")],
        ..Pruned::default()
    };
    let threads = rayon::ThreadPoolBuilder::new().num_threads(VERIFIERS);
    let threads = match threads.thread_name(|_| "fulmar-verify".to_owned()).build() {
        Ok(threads) => threads,
        Err(error) => return nothing(error.to_string()),
    };
    let not_whole = |problem: &TrainError| nothing(format!("not whole: {}", problem.chain()));
    match threads.install(|| verify::verify(storage, step)) {
        Ok((_, problems)) => match problems.first() {
            None => prune(storage, config, step),
            Some(problem) => not_whole(problem),
        },
        Err(problem) => not_whole(&problem),
    }
}

impl TrainingLoop<'_> {
    /// Begins to prune behind the checkpoint of `step`.
    pub(super) fn prune_behind(&mut self, step: u64) {
        if self.world.is_first() {
            self.pruner.begin(self.saver.storage(), &self.config.checkpoint, step);
        }
    }

    /// As [`end_pruning`](Self::end_pruning) at the end of a run, once it has ended. Others wait for
    /// this rank meanwhile, so it is not waited for longer than a part of their patience: what is left
    /// then goes with the next run's first save.
    pub(super) fn wait_for_pruning(&mut self) {
        let (began, patience) = (Instant::now(), self.config.parallel.deadline() / 4);
        let under_way = |pruner: &Pruner| pruner.0.as_ref().is_some_and(|t| !t.is_finished());
        while under_way(&self.pruner) && began.elapsed() < patience {
            std::thread::sleep(LOOK);
            self.pulse.beat();
        }
        self.end_pruning();
    }

    /// Tells what pruning came to, if it has ended.
    pub(super) fn end_pruning(&mut self) {
        if !self.pruner.0.as_ref().is_some_and(JoinHandle::is_finished) {
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
