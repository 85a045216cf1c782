//! Two clocks: the wall's, and what the threads of this process have run.

use std::time::Instant;

/// Wall time, and the time of all threads together, which says the same on a machine that others
/// use too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secs {
    pub(crate) wall: f64,
    /// Not a number where the system does not tell.
    pub(crate) threads: f64,
}

impl Secs {
    pub(crate) const NEVER: Self = Self { wall: f64::INFINITY, threads: f64::INFINITY };

    /// Of one run; what it returns is dropped after the clocks are read.
    pub(crate) fn of<T>(run: &mut impl FnMut() -> T) -> Self {
        let (threads, wall) = (thread_secs(), Instant::now());
        let out = run();
        let secs = Self { wall: wall.elapsed().as_secs_f64(), threads: thread_secs() - threads };
        drop(out);
        secs
    }

    /// The lesser of each clock.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), threads: self.threads.min(other.threads) }
    }
}

/// What the scheduler counts for the threads of this process, in nanoseconds; Linux has it.
fn thread_secs() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return f64::NAN };
    let nanoseconds = tasks.flatten().map(|task| {
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanoseconds.map(|ns| ns.unwrap_or(f64::NAN)).sum::<f64>() / 1e9
}
