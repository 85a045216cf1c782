//! What is run, and how often.

use std::time::{Duration, Instant};

use super::secs::Secs;

/// The best time is looked for at least this long, and with `--quick`.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1_500), Duration::from_millis(200)];

/// Timed repetitions at most.
const MOST_REPEATS: usize = 200;

pub(crate) struct Settings {
    /// One repetition at a small shape.
    pub(crate) short: bool,
    patience: Duration,
    filters: Vec<String>,
}

impl Settings {
    /// Cargo itself passes `--bench`; `cargo test --benches` passes `--test`.
    pub(crate) fn from_args() -> Self {
        let (options, filters): (Vec<_>, Vec<_>) =
            std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
        let has = |name: &str| options.iter().any(|option| option == name);
        let patience = PATIENCE[usize::from(has("--quick"))];
        Self { short: has("--test"), patience, filters }
    }

    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(&**filter))
    }

    /// `small` for a short run, else `full`.
    pub(crate) fn pick<T>(&self, full: T, small: T) -> T {
        if self.short { small } else { full }
    }

    /// The least times of `run`, after one run that is not timed.
    pub(crate) fn best<T>(&self, mut run: impl FnMut() -> T) -> Secs {
        run();
        if self.short {
            return Secs::of(&mut run);
        }
        let started = Instant::now();
        let mut best = Secs::NEVER;
        for _ in 0..MOST_REPEATS {
            if started.elapsed() > self.patience {
                break;
            }
            best = best.min(Secs::of(&mut run));
        }
        best
    }
}
