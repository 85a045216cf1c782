//! Batches in the order of steps, read ahead on threads.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use serde::{Deserialize, Serialize};

use crate::{Batch, DataError, Result, RowSource};

/// Batches that are read ahead unless a setting says otherwise. Reading is far faster than a step,
/// so that this only has to cover a page fault's delay.
pub const READ_AHEAD_BATCHES: usize = 3;

/// How far a [`Loader`] reads ahead, and with how many threads. Changes no batch and no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadAhead {
    /// Threads that read, each a batch at a time; 1 or more, default 2.
    pub threads: usize,
    /// Batches that are being read or wait; 1 or more, default [`READ_AHEAD_BATCHES`].
    pub batches: usize,
    /// Bytes of these, default 1 GiB. The batch that is due next is read in any case, alone if it is
    /// larger.
    pub bytes: u64,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { threads: 2, batches: READ_AHEAD_BATCHES, bytes: 1 << 30 }
    }
}

/// The rows of a batch that one of several ranks takes: equal shares, in the order of ranks.
///
/// Whatever the number of ranks, their shares together are the batch.
///
/// ```
/// use fulmar_data::RankShare;
///
/// let share = RankShare { rank: 2, ranks: 4 };
/// assert_eq!(share.rows(64..80), 72..76);
/// assert_eq!(RankShare::ALL.rows(64..80), 64..80);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankShare {
    /// This rank, from 0.
    pub rank: u64,
    /// How many there are, 1 or more.
    pub ranks: u64,
}

impl RankShare {
    /// The share of a rank that is alone: all rows.
    pub const ALL: Self = Self { rank: 0, ranks: 1 };

    /// The part of a batch's rows.
    pub fn rows(&self, batch: Range<u64>) -> Range<u64> {
        let (num_rows, ranks) = (batch.end - batch.start, self.ranks);
        batch.start + num_rows * self.rank / ranks..batch.start + num_rows * (self.rank + 1) / ranks
    }
}

/// An endless iterator of batches: step n takes global rows `[n B, (n+1) B)`; where rows change
/// their length, the rows of as many tokens ([`BatchPlan`](crate::BatchPlan)).
///
/// A convenience, not a state: [`RowSource::batch`] gives the same batches in any order. An error
/// or a panic of a thread is the next item in the order of steps, and the last one. Dropping the
/// loader ends its threads.
#[derive(Debug)]
pub struct Loader {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

impl Loader {
    /// Batches of `batch_rows` rows of the first length, or as many tokens, from step `start_step`
    /// on.
    ///
    /// # Errors
    /// Those of [`LengthPlan::batches`](crate::LengthPlan::batches); [`DataError::Io`] when the
    /// system gives no thread.
    pub fn new(source: Arc<RowSource>, batch_rows: u64, start_step: u64) -> Result<Self> {
        let ahead = ReadAhead::default();
        Self::of_rank(source, batch_rows, start_step, RankShare::ALL, ahead)
    }

    /// The same batches cut to the rows of one rank, of which alone the tokens are read.
    ///
    /// # Errors
    /// As [`Loader::new`].
    ///
    /// # Panics
    /// If the rank is not one of the ranks.
    pub fn of_rank(
        source: Arc<RowSource>,
        batch_rows: u64,
        start_step: u64,
        share: RankShare,
        ahead: ReadAhead,
    ) -> Result<Self> {
        let RankShare { rank, ranks } = share;
        assert!(rank < ranks, "Loader::of_rank: rank is {rank}, need one of {ranks}");
        let first = source.seq_len_at(0) as u64;
        let batches = source.lengths().batches(batch_rows * first)?;
        let sizes = batches.clone();
        let bytes = move |step: u64| {
            let rows = share.rows(sizes.rows(step));
            Batch::bytes_of((rows.end - rows.start) as usize, sizes.seq_len(step))
        };
        let read = move |step| {
            source.store().check_now_and_then()?;
            Ok(source.batch(share.rows(batches.rows(step))))
        };
        Self::start(start_step, ahead, bytes, read)
    }

    /// Batches from any function of the step, such as a caller's own data, on one thread.
    ///
    /// # Errors
    /// [`DataError::Io`] when the system gives no thread.
    pub fn from_fn(
        start_step: u64,
        read: impl FnMut(u64) -> Result<Batch> + Send + 'static,
    ) -> Result<Self> {
        // One thread alone takes the lock; after a panic nobody does.
        let read = Mutex::new(read);
        let read = move |step| (read.lock().unwrap_or_else(PoisonError::into_inner))(step);
        // What a batch takes is known when it is there.
        Self::start(start_step, ReadAhead { threads: 1, ..ReadAhead::default() }, |_| 0, read)
    }

    /// The most that batches being read or waiting have taken so far, in bytes; the batch in the
    /// consumer's hands is not counted.
    pub fn peak_bytes(&self) -> u64 {
        self.queue.lock().peak_bytes
    }

    fn start(
        start_step: u64,
        ahead: ReadAhead,
        bytes: impl Fn(u64) -> u64 + Send + Sync + 'static,
        read: impl Fn(u64) -> Result<Batch> + Send + Sync + 'static,
    ) -> Result<Self> {
        let queue = Arc::new(Queue::new(start_step, ahead));
        let (bytes, read) = (Arc::new(bytes), Arc::new(read));
        // On an error the threads that run are ended by its drop.
        let mut loader = Self { queue, threads: Vec::new(), ended: false };
        for _ in 0..ahead.threads.max(1) {
            let (queue, bytes, read) =
                (Arc::clone(&loader.queue), Arc::clone(&bytes), Arc::clone(&read));
            let thread = std::thread::Builder::new()
                .name("fulmar-data".to_owned())
                .spawn(move || read_ahead(&queue, &*bytes, &*read))
                .map_err(DataError::io("start a thread for", "batches"))?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.queue.take();
        self.ended = batch.is_err();
        Some(batch)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.queue.stop();
        for thread in self.threads.drain(..) {
            // Panics of reading were caught and sent; there is no result to look at.
            let _ = thread.join();
        }
    }
}

/// Batches on their way from the threads to the consumer.
#[derive(Debug)]
struct Queue {
    ahead: ReadAhead,
    state: Mutex<State>,
    /// A batch is there.
    ready: Condvar,
    /// There is room for one more, or nothing more is wanted.
    room: Condvar,
}

#[derive(Debug)]
struct State {
    /// The step that the consumer takes next.
    next_taken: u64,
    /// The step that a thread reads next.
    next_read: u64,
    /// Batches that are there, with their bytes.
    done: BTreeMap<u64, (Result<Batch>, u64)>,
    /// Of all batches that are being read or there.
    bytes: u64,
    peak_bytes: u64,
    stopped: bool,
}

impl Queue {
    fn new(start_step: u64, ahead: ReadAhead) -> Self {
        let state = State {
            next_taken: start_step,
            next_read: start_step,
            done: BTreeMap::new(),
            bytes: 0,
            peak_bytes: 0,
            stopped: false,
        };
        let (ready, room) = (Condvar::new(), Condvar::new());
        Self { ahead, state: Mutex::new(state), ready, room }
    }

    /// The state is whole whenever the lock is free: nothing that can panic happens under it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next step to read, with its bytes, once there is room; none once nothing more is wanted.
    fn claim(&self, bytes_of: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let step = state.next_read;
            // Where this panics, reading does too, which is caught and sent.
            let bytes = catch_unwind(AssertUnwindSafe(|| bytes_of(step))).unwrap_or(0);
            let waiting = step - state.next_taken;
            let fits = state.bytes + bytes <= self.ahead.bytes;
            if waiting == 0 || (waiting < self.ahead.batches as u64 && fits) {
                state.next_read += 1;
                state.grow(bytes);
                return Some((step, bytes));
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, step: u64, claimed: u64, batch: Result<Batch>) {
        let mut state = self.lock();
        let bytes = batch.as_ref().map_or(0, Batch::num_bytes);
        state.bytes -= claimed;
        state.grow(bytes);
        // Steps before it are still on their way and come first.
        state.stopped |= batch.is_err();
        state.done.insert(step, (batch, bytes));
        drop(state);
        self.ready.notify_all();
    }

    fn take(&self) -> Result<Batch> {
        let mut state = self.lock();
        loop {
            let step = state.next_taken;
            if let Some((batch, bytes)) = state.done.remove(&step) {
                state.next_taken += 1;
                state.bytes -= bytes;
                drop(state);
                self.room.notify_all();
                return batch;
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_all();
    }
}

impl State {
    fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }
}

fn read_ahead(queue: &Queue, bytes: impl Fn(u64) -> u64, read: impl Fn(u64) -> Result<Batch>) {
    while let Some((step, claimed)) = queue.claim(&bytes) {
        // Unwind safety: after a panic no step behind it is read.
        let batch = catch_unwind(AssertUnwindSafe(|| read(step)))
            .unwrap_or_else(|panic| Err(panicked(step, panic.as_ref())));
        queue.put(step, claimed, batch);
    }
}

fn panicked(step: u64, panic: &(dyn Any + Send)) -> DataError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    DataError::LoaderPanicked { step, message: text.unwrap_or("no message").to_owned() }
}
