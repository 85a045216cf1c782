//! How much text may be on its way at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A count of bytes that one thread takes from and another gives back to.
pub(super) struct Budget {
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    taken: u64,
    stopped: bool,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        let state = Mutex::new(State { taken: 0, stopped: false });
        Self { limit, state, changed: Condvar::new() }
    }

    /// Waits until there is room, or until nothing else is taken. False once stopped.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        while !state.stopped && state.taken > 0 && state.taken + bytes > self.limit {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += bytes;
        !state.stopped
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.lock().taken -= bytes;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole at every instant: a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the waiting of others when it goes, however it goes.
pub(super) struct StopAtEnd<'a>(pub(super) &'a Budget);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}
