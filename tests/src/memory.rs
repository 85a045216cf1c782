//! An allocator that counts, for tests and benches that measure memory.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicUsize = AtomicUsize::new(0);
static OF_WATCHED_SIZE: AtomicUsize = AtomicUsize::new(0);

/// An allocator with the bytes that are allocated and the most there were; to be the binary's
/// `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting<A>(pub A);

/// Bytes that are allocated, by all threads.
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at once since [`restart`].
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Forgets the peak. Exact while no other thread allocates.
pub fn restart() {
    PEAK.store(live(), Ordering::Relaxed);
}

/// What was allocated while something ran; exact while nothing else runs.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    /// The most bytes beyond those at the start that were allocated at once.
    pub growth: usize,
    /// Bytes at the end beyond those at the start; negative where some were freed.
    pub kept: isize,
    /// The largest single allocation.
    pub largest: usize,
    /// Allocations of exactly the size that was asked about.
    pub of_size: usize,
}

/// Counts while `run` runs, `size` being the size of special interest.
pub fn count<T>(size: usize, run: impl FnOnce() -> T) -> (T, Counted) {
    let before = live();
    restart();
    LARGEST.store(0, Ordering::Relaxed);
    OF_WATCHED_SIZE.store(0, Ordering::Relaxed);
    WATCHED.store(size, Ordering::Relaxed);
    let value = run();
    let counted = Counted {
        growth: peak() - before,
        kept: live() as isize - before as isize,
        largest: LARGEST.load(Ordering::Relaxed),
        of_size: OF_WATCHED_SIZE.load(Ordering::Relaxed),
    };
    (value, counted)
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    if bytes == WATCHED.load(Ordering::Relaxed) {
        OF_WATCHED_SIZE.fetch_add(1, Ordering::Relaxed);
    }
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to the allocator below unchanged, and counting allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grow(new_size);
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { self.0.realloc(block, layout, new_size) }
    }
}
