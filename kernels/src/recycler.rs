//! An allocator for programs that train: large blocks are kept when they are freed, and given out
//! again.
//!
//! What a step needs the next one needs too, but the system's allocator returns large blocks to the
//! system, which then has to find, clear and map their pages again: at the first write to each
//! page, which costs more than most kernels do with it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks from this size on are kept. glibc, for one, gives larger ones back to the system.
const LEAST_BYTES: usize = 1 << LEAST_EXPONENT;
const LEAST_EXPONENT: u32 = 17;

/// Blocks from this size on are left to the system.
const MOST_BYTES: usize = 1 << (LEAST_EXPONENT + DOUBLINGS as u32);
const DOUBLINGS: usize = 24;

/// Kinds of blocks between a size and its double, so a block has at most an eighth more than was
/// asked for.
const KINDS_A_DOUBLING: usize = 1 << KIND_BITS;
const KIND_BITS: u32 = 3;

/// What a kept block is aligned to, a cache line; whoever asks for more gets it from the system.
const ALIGNMENT: usize = 64;

/// The system's allocator, except that large blocks are kept and given out again.
///
/// Blocks in use and kept ones together are never more than one and a half times the most that was
/// in use at once; beyond that, kept ones go back to the system.
///
/// # Example
/// ```
/// use fulmar_kernels::recycler::Recycler;
///
/// #[global_allocator]
/// static ALLOCATOR: Recycler = Recycler::new();
/// # fn main() {}
/// ```
pub struct Recycler {
    kept: Mutex<Kept>,
}

/// Blocks that nobody uses.
struct Kept {
    /// The first block of each kind; a block begins with the address of the next.
    first: [*mut u8; DOUBLINGS * KINDS_A_DOUBLING],
    kept_bytes: usize,
    used_bytes: usize,
    most_used_bytes: usize,
}

// SAFETY: a kept block belongs to the list it is in and to no thread.
unsafe impl Send for Kept {}

/// A size that blocks come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    index: usize,
    bytes: usize,
}

impl Kind {
    /// The kind of block for `layout`, if it is one that is kept.
    fn of(layout: Layout) -> Option<Self> {
        let bytes = layout.size();
        if !(LEAST_BYTES..MOST_BYTES).contains(&bytes) || layout.align() > ALIGNMENT {
            return None;
        }
        let step = 1 << (bytes.ilog2() - KIND_BITS);
        let bytes = bytes.next_multiple_of(step);
        (bytes < MOST_BYTES).then(|| Self::of_whole(bytes))
    }

    /// Of a size that is one of a kind.
    fn of_whole(bytes: usize) -> Self {
        let exponent = bytes.ilog2();
        let of_doubling = (bytes >> (exponent - KIND_BITS)) - KINDS_A_DOUBLING;
        let doubling = (exponent - LEAST_EXPONENT) as usize;
        Self { index: doubling * KINDS_A_DOUBLING + of_doubling, bytes }
    }

    fn of_index(index: usize) -> Self {
        let (doubling, of_doubling) = (index / KINDS_A_DOUBLING, index % KINDS_A_DOUBLING);
        let step = (LEAST_BYTES >> KIND_BITS) << doubling;
        Self { index, bytes: (KINDS_A_DOUBLING + of_doubling) * step }
    }

    fn layout(self) -> Layout {
        Layout::from_size_align(self.bytes, ALIGNMENT).expect("a size below half the address space")
    }
}

impl Recycler {
    /// An allocator that keeps nothing yet.
    pub const fn new() -> Self {
        let first = [null_mut(); DOUBLINGS * KINDS_A_DOUBLING];
        let kept = Kept { first, kept_bytes: 0, used_bytes: 0, most_used_bytes: 0 };
        Self { kept: Mutex::new(kept) }
    }

    /// Nothing panics under the lock.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept block, or null after making room for one of the system's.
    fn take(&self, kind: Kind) -> *mut u8 {
        let mut kept = self.lock();
        kept.used_bytes += kind.bytes;
        kept.most_used_bytes = kept.most_used_bytes.max(kept.used_bytes);
        let block = kept.pop(kind);
        if block.is_null() {
            kept.shrink();
        }
        block
    }

    /// Corrects the count after the system had nothing.
    fn forget(&self, kind: Kind) {
        self.lock().used_bytes -= kind.bytes;
    }
}

impl Kept {
    fn pop(&mut self, kind: Kind) -> *mut u8 {
        let first = &mut self.first[kind.index];
        let block = *first;
        if !block.is_null() {
            // SAFETY: `push` wrote the address there, and nobody has used the block since.
            *first = unsafe { block.cast::<*mut u8>().read() };
            self.kept_bytes -= kind.bytes;
        }
        block
    }

    /// # Safety
    /// `block` is of `kind`, and nobody uses it any more.
    unsafe fn push(&mut self, kind: Kind, block: *mut u8) {
        // SAFETY: a block is larger than an address and aligned for one, and no longer in use.
        unsafe { block.cast::<*mut u8>().write(self.first[kind.index]) };
        self.first[kind.index] = block;
        self.kept_bytes += kind.bytes;
        self.used_bytes -= kind.bytes;
    }

    /// Gives blocks back to the system, largest first, until few enough are kept.
    fn shrink(&mut self) {
        let limit = self.most_used_bytes + self.most_used_bytes / 2;
        for index in (0..self.first.len()).rev() {
            let kind = Kind::of_index(index);
            while self.used_bytes + self.kept_bytes > limit {
                let block = self.pop(kind);
                if block.is_null() {
                    break;
                }
                // SAFETY: all blocks of a kind came from the system with its layout.
                unsafe { System.dealloc(block, kind.layout()) };
            }
        }
    }
}

impl Default for Recycler {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a block is handed out by the system's allocator with at least the size and alignment that
// were asked for, or taken from a list where `dealloc` put it, which removes it from there. Whether
// and as what kind a block is kept follows from its layout alone, which is the same in `alloc` and
// `dealloc`. Nothing here allocates.
unsafe impl GlobalAlloc for Recycler {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(kind) = Kind::of(layout) else {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        };
        let mut block = self.take(kind);
        if block.is_null() {
            // SAFETY: the layout of a kind has a size above 0.
            block = unsafe { System.alloc(kind.layout()) };
            if block.is_null() {
                self.forget(kind);
            }
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(kind) = Kind::of(layout) else {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        };
        let block = self.take(kind);
        if !block.is_null() {
            // SAFETY: the block has at least as many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
            return block;
        }
        // SAFETY: the layout of a kind has a size above 0.
        let block = unsafe { System.alloc_zeroed(kind.layout()) };
        if block.is_null() {
            self.forget(kind);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match Kind::of(layout) {
            // SAFETY: the caller allocated it with this layout, thus as this kind, and gives it up.
            Some(kind) => unsafe { self.lock().push(kind, block) },
            // SAFETY: as the caller promises.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is above 0 and not too large for the alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (Kind::of(layout), Kind::of(new_layout)) {
            // SAFETY: as the caller promises.
            (None, None) => unsafe { System.realloc(block, layout, new_size) },
            (Some(kind), Some(new_kind)) if kind == new_kind => block,
            _ => {
                // SAFETY: as the caller promises.
                let moved = unsafe { self.alloc(new_layout) };
                if !moved.is_null() {
                    // SAFETY: both have at least as many bytes, and `block` is given up after.
                    unsafe {
                        moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4).expect("a layout")
    }

    #[test]
    fn kinds_cover_all_sizes_with_an_eighth_to_spare() {
        assert_eq!(Kind::of(layout(LEAST_BYTES - 1)), None);
        assert_eq!(Kind::of(layout(MOST_BYTES)), None);
        assert_eq!(Kind::of(Layout::from_size_align(1 << 20, 4096).expect("a layout")), None);
        let mut last = 0;
        for bytes in (LEAST_BYTES..1 << 22).step_by(1000).chain([MOST_BYTES / 2]) {
            let kind = Kind::of(layout(bytes)).expect("a kind");
            assert!(kind.bytes >= bytes && (kind.bytes - bytes) * 8 < bytes, "{bytes}: {kind:?}");
            assert!(kind.index >= last, "{bytes}: {kind:?} after {last}");
            assert_eq!(Kind::of_index(kind.index), kind);
            last = kind.index;
        }
    }

    #[test]
    fn a_freed_block_is_the_next_one_of_its_kind() {
        let recycler = Recycler::new();
        // SAFETY: every block is used within its size and freed once, with its own layout.
        unsafe {
            let block = recycler.alloc(layout(200_000));
            block.write_bytes(7, 200_000);
            recycler.dealloc(block, layout(200_000));
            let again = recycler.alloc_zeroed(layout(201_000));
            assert_eq!(again, block);
            let bytes = std::slice::from_raw_parts(again, 201_000);
            assert!(bytes.iter().all(|byte| *byte == 0));
            let other = recycler.alloc(layout(200_000));
            assert_ne!(other, again);
            recycler.dealloc(again, layout(201_000));
            recycler.dealloc(other, layout(200_000));
        }
    }

    #[test]
    fn blocks_keep_their_bytes_when_they_grow_and_shrink() {
        let recycler = Recycler::new();
        let mut size = 1_000;
        // SAFETY: the block is used within its size and freed once, with its last layout.
        unsafe {
            let mut block = recycler.alloc(layout(size));
            block.write_bytes(9, size);
            for new_size in [140_000, 141_000, 1_000_000, 150_000, 2_000] {
                block = recycler.realloc(block, layout(size), new_size);
                let kept = std::slice::from_raw_parts(block, 1_000);
                assert!(kept.iter().all(|byte| *byte == 9), "{size} to {new_size}");
                size = new_size;
            }
            recycler.dealloc(block, layout(size));
        }
        let kept = recycler.lock();
        assert_eq!(kept.used_bytes, 0);
        assert!(kept.kept_bytes > 1_000_000);
    }

    #[test]
    fn what_is_kept_is_bounded_by_what_was_used() {
        let recycler = Recycler::new();
        for bytes in (200_000..2_000_000).step_by(100_000) {
            // SAFETY: every block is freed once, with its own layout.
            unsafe {
                let block = recycler.alloc(layout(bytes));
                recycler.dealloc(block, layout(bytes));
            }
            let kept = recycler.lock();
            assert!(kept.kept_bytes <= kept.most_used_bytes / 2 * 3, "after {bytes} bytes");
        }
    }
}
