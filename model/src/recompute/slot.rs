//! A place for one value on its way from one node's backward to another's.

use std::sync::Mutex;

/// Moves a value through a closure that is called once but not known to be.
#[derive(Debug)]
pub(super) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    pub(super) fn empty() -> Self {
        Self(Mutex::new(None))
    }

    pub(super) fn of(value: T) -> Self {
        Self(Mutex::new(Some(value)))
    }

    pub(super) fn put(&self, value: T) {
        *self.0.lock().expect("nothing panics with the lock") = Some(value);
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().expect("nothing panics with the lock").take()
    }
}
