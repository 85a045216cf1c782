//! Batches in the order of steps, read ahead on a thread.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use crate::{Batch, DataError, Result, RowSource};

/// Batches that wait for the consumer. The reading thread holds one more; reading is far faster
/// than a step, so that this only has to cover a page fault's delay.
pub const READ_AHEAD_BATCHES: usize = 2;

/// An endless iterator of batches: step n takes global rows `[n B, (n+1) B)`; where rows change
/// their length, the rows of as many tokens ([`BatchPlan`](crate::BatchPlan)).
///
/// A convenience, not a state: [`RowSource::batch`] gives the same batches in any order. An error
/// or a panic of the thread is the next item, and the last one. Dropping the loader ends the
/// thread.
#[derive(Debug)]
pub struct Loader {
    /// None once the loader ends: the thread's next send fails, and it returns.
    batches: Option<Receiver<Result<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Batches of `batch_rows` rows of the first length, or as many tokens, from step `start_step`
    /// on.
    ///
    /// # Errors
    /// Those of [`LengthPlan::batches`](crate::LengthPlan::batches); [`DataError::Io`] when the
    /// system gives no thread.
    pub fn new(source: Arc<RowSource>, batch_rows: u64, start_step: u64) -> Result<Self> {
        let first = source.seq_len_at(0) as u64;
        let batches = source.lengths().batches(batch_rows * first)?;
        Self::from_fn(start_step, move |step| {
            source.store().check_now_and_then()?;
            Ok(source.batch(batches.rows(step)))
        })
    }

    /// Batches from any function of the step, such as a caller's own data.
    ///
    /// # Errors
    /// [`DataError::Io`] when the system gives no thread.
    pub fn from_fn(
        start_step: u64,
        read: impl FnMut(u64) -> Result<Batch> + Send + 'static,
    ) -> Result<Self> {
        let (sender, receiver) = sync_channel(READ_AHEAD_BATCHES);
        let thread = std::thread::Builder::new()
            .name("fulmar-data".to_owned())
            .spawn(move || read_ahead(start_step, read, &sender))
            .map_err(DataError::io("start a thread for", "batches"))?;
        Ok(Self { batches: Some(receiver), thread: Some(thread) })
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.as_ref()?.recv().ok();
        if !matches!(batch, Some(Ok(_))) {
            self.batches = None;
        }
        batch
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Its panics were caught and sent; there is no result to look at.
            let _ = thread.join();
        }
    }
}

fn read_ahead(
    start_step: u64,
    mut read: impl FnMut(u64) -> Result<Batch>,
    sender: &SyncSender<Result<Batch>>,
) {
    for step in start_step.. {
        // Unwind safety: after a panic `read` is never called again.
        let batch = catch_unwind(AssertUnwindSafe(|| read(step)))
            .unwrap_or_else(|panic| Err(panicked(step, panic.as_ref())));
        let ended = batch.is_err();
        if sender.send(batch).is_err() || ended {
            return;
        }
    }
}

fn panicked(step: u64, panic: &(dyn Any + Send)) -> DataError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    DataError::LoaderPanicked { step, message: text.unwrap_or("no message").to_owned() }
}
