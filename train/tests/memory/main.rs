//! What a step holds at most and what it leaves behind: a binary of its own, since its allocator
//! counts, and one test at a time, since it counts what all threads do.

mod exchange;
mod passes;
mod updates;

use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar_tests::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
