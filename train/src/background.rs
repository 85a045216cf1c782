//! Threads that work beside training.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Lets the calling thread, and those that it starts, run only where training leaves a core free: what
/// it does is not urgent, and a step waits for its slowest thread. A system that refuses leaves it as
/// it is.
///
/// The lowest priority of the usual policy, and not the idle policy: on cores that others keep busy
/// too, an idle thread gets nothing, and saves would never end.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    {
        /// The least urgent there is; on Linux it is of the thread alone.
        const NICE: i32 = 19;
        rustix::process::setpriority_process(None, NICE).ok();
    }
}

/// Rests of a thread that works beside training: cores share caches and memory, so that even what runs
/// in the gaps of a step slows it. Work that is spread over more steps slows each of them less.
#[derive(Debug, Default)]
pub struct Pace {
    hurry: AtomicBool,
    since_rest: Mutex<(usize, Duration)>,
}

impl Pace {
    /// Bytes between two rests, some milliseconds of work; what is smaller is written at once.
    const BYTES: usize = 8 << 20;
    /// A rest, in times of the work before it.
    const RESTS: u32 = 12;
    /// The longest rest: work that waited for a core took longer than it is.
    const LONGEST: Duration = Duration::from_millis(100);

    /// No more rests: somebody waits for the end.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    /// Does some work, on so many bytes, and rests if it is time.
    pub fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        let worked = {
            let mut since = self.since_rest.lock().unwrap_or_else(PoisonError::into_inner);
            *since = (since.0 + bytes, since.1 + began.elapsed());
            if since.0 < Self::BYTES {
                return done;
            }
            std::mem::take(&mut *since).1
        };
        if !self.hurry.load(Ordering::Relaxed) {
            sleep((Self::RESTS * worked).min(Self::LONGEST));
        }
        done
    }

    /// A pace without rests.
    pub fn none() -> Self {
        Self { hurry: AtomicBool::new(true), ..Self::default() }
    }
}
