//! When and how the loop saves. Nothing of it ends a run but the last save, after some tries.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::between_steps::{Saving, Tidings};
use super::{TrainingLoop, due};
use crate::background::{Pace, give_way};
use crate::checkpoint::save::{Files, Saved, commit};
use crate::checkpoint::snapshot::Facts;
use crate::checkpoint::{Run, Snapshot, step_name};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::Event;
use crate::storage::Storage;
use crate::watchdog::Phase;

/// How often the last save of a run is tried before it is an error.
const LAST_TRIES: usize = 3;

/// What a rank knows of its saves.
#[derive(Debug)]
pub(super) struct Saver {
    storage: Arc<dyn Storage>,
    /// Steps whose state lies in the storage: the one that the run goes on from, or the last saved.
    saved: Option<u64>,
    under_way: Option<UnderWay>,
    /// The step from which a save that failed is tried again.
    retry_at: Option<u64>,
    every: Option<Duration>,
    last_begun: Instant,
}

/// A save on a thread of its own.
#[derive(Debug)]
struct UnderWay {
    facts: Facts,
    began: Instant,
    pace: Arc<Pace>,
    /// The thread, or why there is none.
    thread: Result<JoinHandle<Result<Files, TrainError>>, TrainError>,
}

impl Saver {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        config: &RunConfig,
        resumed_from: Option<u64>,
    ) -> Self {
        let every = config.checkpoint.every_secs;
        Self {
            storage,
            saved: resumed_from,
            under_way: None,
            retry_at: None,
            every: (every > 0).then(|| Duration::from_secs(every)),
            last_begun: Instant::now(),
        }
    }

    /// Where checkpoints lie.
    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Path or address of the newest checkpoint that this attempt knows.
    pub(super) fn place(&self) -> Option<String> {
        self.saved.map(|step| self.storage.locate(&step_name(step)))
    }

    /// Whether so much time has gone by that a save is due.
    pub(super) fn due_by_clock(&self) -> bool {
        self.every.is_some_and(|every| self.last_begun.elapsed() >= every)
    }

    /// How far this rank's part of a save in the background is.
    pub(super) fn progress(&self) -> Saving {
        match &self.under_way {
            None => Saving::Idle,
            Some(save) => match &save.thread {
                Ok(thread) if !thread.is_finished() => Saving::Writing,
                _ => Saving::Ended,
            },
        }
    }
}

impl UnderWay {
    /// Begins to write a snapshot.
    fn begin(snapshot: Snapshot, storage: Arc<dyn Storage>) -> Self {
        let facts = snapshot.facts().clone();
        let (place, pace) = (storage.locate(""), Arc::new(Pace::default()));
        let of_thread = pace.clone();
        let thread = std::thread::Builder::new().name("fulmar-save".to_owned());
        let thread = thread.spawn(move || {
            give_way();
            snapshot.write(&*storage, &of_thread)
        });
        let failed = |source| TrainError::Storage { doing: "start a thread for", place, source };
        Self { facts, began: Instant::now(), pace, thread: thread.map_err(failed) }
    }

    /// Waits for its end.
    fn join(self) -> (Facts, f64, Result<Files, TrainError>) {
        self.pace.hurry();
        let panicked = || TrainError::Panic { message: "the thread that saves".to_owned() };
        let own = self.thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(panicked())));
        (self.facts, self.began.elapsed().as_secs_f64(), own)
    }
}

impl TrainingLoop<'_> {
    /// Begins a save of this step's state if one is due.
    pub(super) fn save_if_due(&mut self, tidings: &[Tidings]) -> Result<(), TrainError> {
        let (config, step) = (&self.config.checkpoint, self.state.step);
        let again = self.saver.retry_at.is_some_and(|at| step >= at);
        let by_steps = due(step, config.every) || step == config.first;
        if !config.enabled || !(by_steps || tidings[0].save_due || again) {
            return Ok(());
        }
        let background = config.background;
        // What is saved is in the log.
        self.record.flush();
        self.pulse.enter(Phase::Saving);
        self.saver.last_begun = Instant::now();
        if let Some(save) = &self.saver.under_way {
            let before = save.facts.step();
            save.pace.hurry();
            let text = format!("a save is due, and left out: that of step {before} is under way");
            let event = Event::now(step, self.record.attempt(), "save_skipped", text);
            self.record.event(&event);
            return Ok(());
        }
        self.saver.retry_at = None;
        let snapshot = self.snapshot();
        if background {
            let storage = self.saver.storage.clone();
            self.saver.under_way = Some(UnderWay::begin(snapshot, storage));
            return Ok(());
        }
        self.save(snapshot).map(drop)
    }

    /// Makes a checkpoint of a save in the background that all ranks have written.
    pub(super) fn end_background_save(&mut self, tidings: &[Tidings]) -> Result<(), TrainError> {
        if tidings.iter().any(|of_rank| of_rank.saving != Saving::Ended) {
            return Ok(());
        }
        self.wait_for_save()
    }

    /// Saves the state of the last step, unless it is saved already.
    pub(super) fn last_save(&mut self) -> Result<(), TrainError> {
        if !self.config.checkpoint.enabled {
            return Ok(());
        }
        self.wait_for_save()?;
        let mut tries = 1;
        while self.saver.saved != Some(self.state.step) {
            let snapshot = self.snapshot();
            match self.save(snapshot)? {
                Err(error) if tries == LAST_TRIES => return Err(error),
                _ => tries += 1,
            }
        }
        Ok(())
    }

    fn wait_for_save(&mut self) -> Result<(), TrainError> {
        let Some(save) = self.saver.under_way.take() else { return Ok(()) };
        let (facts, secs, own) = save.join();
        self.commit(&facts, own, secs).map(drop)
    }

    fn snapshot(&self) -> Snapshot {
        let batches = self.state.batches;
        let run = Run {
            consumed: self.data.consumed(self.config.rows_taken(batches)),
            exchange: self.exchange.name(),
            attempt: self.record.attempt(),
            ..Run::new(&self.saver.storage, &self.config, &self.data.digest)
        };
        Snapshot::new(&run, &self.state, self.world)
    }

    /// Writes a snapshot while training waits.
    fn save(&mut self, snapshot: Snapshot) -> Result<Result<(), TrainError>, TrainError> {
        let (facts, began) = (snapshot.facts().clone(), Instant::now());
        let own = snapshot.write(&*self.saver.storage, &Pace::none());
        self.commit(&facts, own, began.elapsed().as_secs_f64())
    }

    /// Makes a checkpoint of what all ranks have written, or says why there is none.
    fn commit(
        &mut self,
        facts: &Facts,
        own: Result<Files, TrainError>,
        secs: f64,
    ) -> Result<Result<(), TrainError>, TrainError> {
        let (step, attempt) = (self.state.step, self.record.attempt());
        match commit(&*self.saver.storage, facts, own, self.world)? {
            Ok(Saved { step: of, place, bytes }) => {
                self.saver.saved = Some(of);
                let event = Event::now(step, attempt, "saved", format!("saved to {place}"));
                let event = event.with("of", of).with("bytes", bytes).with("secs", secs);
                self.record.quiet_event(&event);
                self.prune_behind(of);
                Ok(Ok(()))
            }
            Err(error) => {
                self.saver.retry_at = Some(step + self.config.checkpoint.retry_after);
                let event = Event::now(step, attempt, "save_failed", error.to_string());
                self.record.event(&event);
                Ok(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;
    use fulmar_model::Preset;

    fn saver(every_secs: u64) -> Saver {
        let mut config = RunConfig::preset(Preset::MiniD96);
        config.checkpoint.every_secs = every_secs;
        Saver::new(Arc::new(LocalStorage::new("nowhere")), &config, Some(3))
    }

    #[test]
    fn a_save_is_due_when_so_many_seconds_have_gone_by_since_the_last() {
        let mut saver = self::saver(60);
        assert!(!saver.due_by_clock());
        saver.last_begun = Instant::now().checked_sub(Duration::from_secs(61)).expect("an instant");
        assert!(saver.due_by_clock());
        let mut never = self::saver(0);
        never.last_begun = saver.last_begun;
        assert!(!never.due_by_clock());
    }

    #[test]
    fn the_checkpoint_that_a_run_goes_on_from_is_its_newest() {
        let saver = saver(0);
        assert_eq!(saver.place().as_deref(), Some("nowhere/step-00000003"));
        assert_eq!(saver.progress(), Saving::Idle);
    }
}
