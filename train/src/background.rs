//! Threads that work beside training.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Lets the calling thread, and those that it starts, run only where training leaves a core free: what
/// it does is not urgent, and a step waits for its slowest thread. A system that refuses leaves it as
/// it is.
///
/// On Linux the policy is the idle one, and not a low priority of the usual policy: since Linux 6.6 a
/// thread of the usual policy is left to the end of its slice, 3 ms, whoever wakes up meanwhile, and
/// an idle one gives way at once.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads `parameters`, which lives, and changes how this thread is scheduled
        // and nothing else; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    }
}

/// Rests of a thread that works beside training: cores share caches and memory, so that even what runs
/// in the gaps of a step slows it. Work that is spread over more steps slows each of them less.
#[derive(Debug, Default)]
pub struct Pace {
    hurry: AtomicBool,
}

impl Pace {
    /// A rest, in times of the work before it.
    const RESTS: u32 = 6;
    /// The longest rest: work that waited for a core took longer than it is.
    const LONGEST: Duration = Duration::from_millis(20);

    /// No more rests: somebody waits for the end.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    /// Does some work, a few milliseconds of it, and rests.
    pub fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        if !self.hurry.load(Ordering::Relaxed) {
            sleep((Self::RESTS * began.elapsed()).min(Self::LONGEST));
        }
        done
    }

    /// A pace without rests.
    pub fn none() -> Self {
        Self { hurry: AtomicBool::new(true) }
    }
}
