//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use mimalloc::MiMalloc;

use super::secs::Secs;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// An allocator with the bytes that are allocated and the most there were.
pub(crate) struct Counting(pub(crate) MiMalloc);

/// Bytes that are allocated, by all threads.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at once since [`restart`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Forgets the peak. Exact while no other thread allocates.
pub(crate) fn restart() {
    PEAK.store(live(), Ordering::Relaxed);
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to the allocator below unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
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

/// The time of `run`, and the most bytes that it held beyond what was allocated before. A run
/// before fills what threads keep.
pub(crate) fn beside<T>(mut run: impl FnMut() -> T) -> (Secs, usize) {
    drop(run());
    restart();
    let before = live();
    let secs = Secs::of(&mut run);
    (secs, peak() - before)
}
