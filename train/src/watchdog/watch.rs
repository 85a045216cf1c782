//! The thread that looks.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::judge::{Finding, Judge, Limits};
use super::pulse::Board;
use crate::exit;
use crate::history::{Event, History};

/// A look costs microseconds.
const LONGEST_TICK: Duration = Duration::from_millis(500);
const SHORTEST_TICK: Duration = Duration::from_millis(10);
/// How long an end in good order may take once ranks are stuck: what they are stuck in may be
/// what has to be closed.
const LAST_CHANCE: Duration = Duration::from_secs(10);

/// Looks at a board until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    /// Dropped to make the thread end.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the ranks of `board`. Where none of them makes progress any more, the process ends
    /// with [`exit::PEER_LOST`].
    pub fn start(board: &Board, limits: Limits) -> Self {
        let (ends, ended) = channel();
        let board = board.clone();
        let tick = tick(&limits);
        let look = move || {
            let (mut judge, mut last) = (Judge::default(), Instant::now());
            while ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                // While this process is stopped its ranks cannot make progress.
                let passed = last.elapsed().min(2 * tick);
                last = Instant::now();
                for finding in judge.look(&board.look(), &limits, passed) {
                    tell(&finding, &board);
                }
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(look);
        Self { ends: Some(ends), thread: Some(thread.expect("a system with threads")) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // It only fails if it panicked, which its message said.
            let _ = thread.join();
        }
    }
}

/// Often enough to see what the limits are about.
fn tick(limits: &Limits) -> Duration {
    let slow = Duration::from_secs_f64(limits.slow_secs / 4.0);
    let stuck = if limits.stuck.is_zero() { LONGEST_TICK } else { limits.stuck / 8 };
    slow.min(stuck).clamp(SHORTEST_TICK, LONGEST_TICK)
}

fn tell(finding: &Finding, board: &Board) {
    let text = finding.to_string();
    if let Finding::Stuck { .. } = finding {
        eprintln!("error: {text}");
        for (rank, failure) in board.failures() {
            eprintln!("  rank {rank} has failed: {failure}");
        }
        std::thread::spawn(|| {
            std::thread::sleep(LAST_CHANCE);
            std::process::abort();
        });
        std::process::exit(exit::PEER_LOST.into());
    }
    // Only the first rank's process has a voice and a history.
    let Some(voice) = board.voice() else { return eprintln!("{text}") };
    voice.console.line(&text);
    let event = finding.event(&text, voice.attempt);
    let written = History::open(&voice.folder).and_then(|mut history| history.append(&event));
    if let Err(error) = written {
        voice.console.line(&format!("not in the history: {error}"));
    }
}

impl Finding {
    fn event(&self, text: &str, attempt: u64) -> Event {
        let event = |step: u64| Event::now(step, attempt, "slow_step", text);
        match self {
            Self::Slow { activity, step, behind, secs, median } => {
                let ranks: Vec<usize> = behind.iter().map(|(rank, _)| *rank).collect();
                let phase = behind.first().map_or("", |(_, phase)| phase.name());
                let event = event(*step).with("activity", activity.name()).with("over", false);
                let event = event.with("ranks", ranks).with("phase", phase);
                event.with("secs", *secs).with("median_secs", *median)
            }
            Self::Over { activity, step, secs } => {
                let event = event(*step).with("activity", activity.name()).with("over", true);
                event.with("secs", *secs)
            }
            Self::Stuck { secs, .. } => event(0).with("secs", *secs),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Slow { activity, step, behind, secs, median } => {
                let name = activity.name();
                write!(f, "slow: the {name} after {step} updates has taken {secs:.1} s so far, ")?;
                write!(f, "the last ones {median:.1} s (median):")?;
                for (rank, phase) in behind {
                    write!(f, " rank {rank} is in {}", phase.name())?;
                }
                Ok(())
            }
            Self::Over { activity, step, secs } => {
                let name = activity.name();
                write!(f, "the slow {name} after {step} updates is over, it took {secs:.1} s")
            }
            Self::Stuck { ranks, secs } => {
                write!(f, "no rank of this process has made progress for {secs:.1} s")?;
                for (rank, step, phase) in ranks {
                    write!(f, "\n  rank {rank}: {} after {step} updates", phase.name())?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::super::phase::Phase;
    use super::super::pulse::Voice;
    use super::*;
    use crate::telemetry::Console;

    #[test]
    fn a_slow_rank_is_in_the_history_with_its_phase_and_again_when_it_is_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let board = Board::default();
        let (first, second) = (board.enrol(0), board.enrol(1));
        let console = Console::new(0, 9, 1);
        board.speak_through(Voice { console, folder: folder.path().to_owned(), attempt: 2 });
        let limits = Limits { slow_factor: 3.0, slow_secs: 0.1, stuck: Duration::ZERO };
        let watchdog = Watchdog::start(&board, limits);
        for step in 0..5 {
            for pulse in [&first, &second] {
                pulse.begin_step(step);
            }
            if step == 4 {
                first.enter(Phase::Gradients);
                sleep(Duration::from_secs(1));
            }
            for pulse in [&first, &second] {
                pulse.enter(Phase::Update);
                pulse.enter(Phase::Hooks);
            }
        }
        sleep(Duration::from_millis(300));
        drop(watchdog);
        let events = History::read(folder.path()).expect("a history");
        assert_eq!(events.len(), 2, "{events:?}");
        for event in &events {
            assert_eq!((event.what.as_str(), event.step, event.attempt), ("slow_step", 4, 2));
        }
        assert_eq!(events[0].detail["phase"], "loading");
        assert_eq!(events[0].detail["ranks"], serde_json::json!([1]));
        assert_eq!(
            (&events[0].detail["over"], &events[1].detail["over"]),
            (&false.into(), &true.into())
        );
        assert!(events[1].detail["secs"].as_f64() >= Some(0.8), "{events:?}");
    }
}
