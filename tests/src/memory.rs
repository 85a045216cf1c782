//! An allocator that counts, for tests and benches that measure memory.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

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

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
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
