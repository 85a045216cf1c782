//! What a storage is asked to do, and how often.

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Storage::list`](super::Storage::list).
    List,
    /// [`Storage::size`](super::Storage::size).
    Size,
    /// [`Storage::read`](super::Storage::read).
    Read,
    /// [`Storage::create`](super::Storage::create).
    Create,
    /// A write into an object that was created.
    Write,
    /// [`Upload::finish`](super::Upload::finish).
    Finish,
    /// [`Storage::remove`](super::Storage::remove).
    Remove,
}

impl Call {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::List, Self::Size, Self::Read, Self::Create, Self::Write, Self::Finish, Self::Remove];
}

/// Calls by kind; shared by threads.
#[derive(Debug, Default)]
pub(super) struct Calls([AtomicU64; Call::ALL.len()]);

impl Calls {
    /// Counts a call and returns its number, from 1.
    pub(super) fn count(&self, call: Call) -> u64 {
        self.0[call as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn of(&self, call: Call) -> u64 {
        self.0[call as usize].load(Ordering::Relaxed)
    }

    pub(super) fn reset(&self) {
        for count in &self.0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}
