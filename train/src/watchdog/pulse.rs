//! What each rank of a process is doing, where all can see it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fulmar_ep::transport::TransportError;

use super::judge::Seen;
use super::phase::{Activity, Phase, PhaseSeconds};
use crate::error::TrainError;
use crate::telemetry::Console;

/// Durations that are remembered of each activity.
const REMEMBERED: usize = 20;

/// The ranks of a process, and who speaks for them.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Posted>>);

#[derive(Debug, Default)]
struct Posted {
    pulses: Vec<Pulse>,
    voice: Option<Voice>,
    /// Ranks that have failed, and by what.
    failures: Vec<(usize, String)>,
}

/// How the first rank's process tells what its watchdog sees.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Where lines go.
    pub console: Console,
    /// The run's folder, with its history.
    pub folder: PathBuf,
    /// Which start of the run.
    pub attempt: u64,
}

impl Board {
    /// The pulse of `rank`, which is starting.
    pub fn enrol(&self, rank: usize) -> Pulse {
        let pulse = Pulse(Arc::new(Mutex::new(Cell::new(rank))));
        unpoisoned(&self.0).pulses.push(pulse.clone());
        pulse
    }

    /// From now on findings are told through `voice`, and go into the run's history.
    pub fn speak_through(&self, voice: Voice) {
        unpoisoned(&self.0).voice = Some(voice);
    }

    /// Lets a rank run, and remembers by what it failed: where another one hangs, nobody else ever
    /// tells what it was waited for with.
    ///
    /// # Errors
    /// That of `body`.
    pub(crate) fn witness<T>(
        &self,
        rank: usize,
        body: impl FnOnce() -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        // Unwind safety: what unwinds here goes on unwinding.
        let ended = catch_unwind(AssertUnwindSafe(body));
        let failure = match &ended {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.chain()),
            Err(panic) => panic.downcast_ref::<TransportError>().map(ToString::to_string),
        };
        unpoisoned(&self.0).failures.extend(failure.map(|failure| (rank, failure)));
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The ranks that have failed, in the order in which they did.
    pub(super) fn failures(&self) -> Vec<(usize, String)> {
        unpoisoned(&self.0).failures.clone()
    }

    pub(super) fn voice(&self) -> Option<Voice> {
        unpoisoned(&self.0).voice.clone()
    }

    /// Every rank, in the order of their numbers.
    pub(super) fn look(&self) -> Vec<Seen> {
        let mut seen: Vec<Seen> = unpoisoned(&self.0).pulses.iter().map(Pulse::seen).collect();
        seen.sort_by_key(|seen| seen.rank);
        seen
    }
}

/// A rank's own place on the board. A default one is on no board, and measures time all the same.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Mutex<Cell>>);

#[derive(Debug)]
struct Cell {
    rank: usize,
    /// Completed updates when the step at hand began.
    step: u64,
    phase: Phase,
    phase_since: Instant,
    activity_since: Instant,
    /// Signs of life so far.
    beats: u64,
    spent: PhaseSeconds,
    /// Seconds of the last few of each activity.
    past: [VecDeque<f64>; 3],
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Cell::new(0))))
    }
}

impl Pulse {
    /// A step after `step` completed updates begins, with its batch.
    pub fn begin_step(&self, step: u64) {
        let mut cell = unpoisoned(&self.0);
        cell.end_activity();
        cell.step = step;
        cell.go_to(Phase::Loading);
    }

    /// The rank goes over to `phase`.
    pub fn enter(&self, phase: Phase) {
        let mut cell = unpoisoned(&self.0);
        if cell.phase.activity() != phase.activity() {
            cell.end_activity();
        }
        cell.go_to(phase);
    }

    /// A sign of life within a long phase.
    pub fn beat(&self) {
        unpoisoned(&self.0).beats += 1;
    }

    /// Time by phase since the last call, or since the rank was enrolled.
    pub fn take_seconds(&self) -> PhaseSeconds {
        let mut cell = unpoisoned(&self.0);
        let phase = cell.phase;
        cell.go_to(phase);
        std::mem::take(&mut cell.spent)
    }

    fn seen(&self) -> Seen {
        let cell = unpoisoned(&self.0);
        let activity = cell.phase.activity();
        let past = activity.map(|activity| &cell.past[activity as usize]);
        Seen {
            rank: cell.rank,
            step: cell.step,
            phase: cell.phase,
            secs: cell.activity_since.elapsed().as_secs_f64(),
            past: past.map_or_else(Vec::new, |past| past.iter().copied().collect()),
            beats: cell.beats,
        }
    }

    /// How long the last activity of the kind took.
    pub fn last_seconds(&self, activity: Activity) -> Option<f64> {
        unpoisoned(&self.0).past[activity as usize].back().copied()
    }
}

impl Cell {
    fn new(rank: usize) -> Self {
        let now = Instant::now();
        Self {
            rank,
            step: 0,
            phase: Phase::Starting,
            phase_since: now,
            activity_since: now,
            beats: 0,
            spent: PhaseSeconds::default(),
            past: Default::default(),
        }
    }

    fn go_to(&mut self, phase: Phase) {
        let now = Instant::now();
        self.spent.add(self.phase, now - self.phase_since);
        self.phase = phase;
        self.phase_since = now;
        self.beats += 1;
    }

    fn end_activity(&mut self) {
        if let Some(activity) = self.phase.activity() {
            let past = &mut self.past[activity as usize];
            if past.len() == REMEMBERED {
                past.pop_front();
            }
            past.push_back(self.activity_since.elapsed().as_secs_f64());
        }
        self.activity_since = Instant::now();
    }
}

/// A rank that panicked leaves its cell as it was, which is what the watchdog should print.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_phases_add_up_to_the_time_that_passed() {
        let pulse = Pulse::default();
        let started = Instant::now();
        pulse.take_seconds();
        pulse.begin_step(3);
        sleep(Duration::from_millis(20));
        pulse.enter(Phase::ForwardBackward);
        sleep(Duration::from_millis(30));
        pulse.beat();
        pulse.enter(Phase::Hooks);
        let seconds = pulse.take_seconds();
        let passed = started.elapsed().as_secs_f64();
        assert!(seconds.of(Phase::Loading) >= 0.02, "{seconds:?}");
        assert!(seconds.of(Phase::ForwardBackward) >= 0.03, "{seconds:?}");
        let sum: f64 = Phase::ALL.iter().map(|phase| seconds.of(*phase)).sum();
        assert!((sum - seconds.total()).abs() < 1e-9 && sum <= passed, "{sum} of {passed}");
        assert!(passed - sum < 0.01, "{passed} s passed, {sum} s are accounted for");
    }

    #[test]
    fn a_step_lasts_from_loading_to_update_and_an_evaluation_is_none() {
        let pulse = Pulse::default();
        pulse.begin_step(0);
        pulse.enter(Phase::Update);
        sleep(Duration::from_millis(20));
        pulse.enter(Phase::Evaluation);
        sleep(Duration::from_millis(50));
        pulse.enter(Phase::Hooks);
        pulse.begin_step(1);
        let step = pulse.last_seconds(Activity::Step).expect("a step");
        let evaluation = pulse.last_seconds(Activity::Evaluation).expect("an evaluation");
        assert!((0.02..0.045).contains(&step), "{step}");
        assert!(evaluation >= 0.05, "{evaluation}");
        assert_eq!(pulse.last_seconds(Activity::Saving), None);
    }
}
