//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicUsize = AtomicUsize::new(0);
static OF_WATCHED_SIZE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub(crate) struct Counting;

/// What was allocated while something ran; exact while nothing else runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// The most bytes beyond those at the start that were allocated at once.
    pub(crate) growth: usize,
    /// Bytes at the end beyond those at the start; negative where some were freed.
    pub(crate) kept: isize,
    /// The largest single allocation.
    pub(crate) largest: usize,
    /// Allocations of exactly the size that was asked about.
    pub(crate) of_size: usize,
}

/// Counts while `run` runs, `size` being the size of special interest.
pub(crate) fn count<T>(size: usize, run: impl FnOnce() -> T) -> (T, Counted) {
    let before = LIVE.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    LARGEST.store(0, Ordering::SeqCst);
    OF_WATCHED_SIZE.store(0, Ordering::SeqCst);
    WATCHED.store(size, Ordering::SeqCst);
    let value = run();
    let counted = Counted {
        growth: PEAK.load(Ordering::SeqCst) - before,
        kept: LIVE.load(Ordering::SeqCst) as isize - before as isize,
        largest: LARGEST.load(Ordering::SeqCst),
        of_size: OF_WATCHED_SIZE.load(Ordering::SeqCst),
    };
    (value, counted)
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    PEAK.fetch_max(live, Ordering::SeqCst);
    LARGEST.fetch_max(bytes, Ordering::SeqCst);
    if bytes == WATCHED.load(Ordering::SeqCst) {
        OF_WATCHED_SIZE.fetch_add(1, Ordering::SeqCst);
    }
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::SeqCst);
}

// SAFETY: every call goes to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grow(new_size);
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, new_size) }
    }
}
