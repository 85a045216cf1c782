//! A world of threads, from its first rank's start to its last one's end.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::threads::{Hub, Threads};
use super::{Transport, TransportError};

/// How long a rank waits for its peers unless a run says otherwise. A peer may be writing a
/// checkpoint meanwhile.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(600);

/// Graphs of deep models are walked by recursion; what a main thread has is enough.
const STACK_BYTES: usize = 8 << 20;

/// Why a world ended: the first rank that failed, and how.
#[derive(Debug)]
pub struct WorldError<E> {
    /// The rank.
    pub rank: usize,
    /// What happened there.
    pub failure: RankFailure<E>,
}

/// How a rank failed.
#[derive(Debug)]
pub enum RankFailure<E> {
    /// Its body returned an error.
    Error(E),
    /// A collective failed where no error can be returned, inside a backward pass.
    Transport(TransportError),
    /// It panicked.
    Panic(String),
}

/// The value, or an end of this rank by the error: where a collective runs inside a backward pass
/// or a module's map, nothing can be returned, and a panic would print a message of its own on every
/// rank. Whoever launched the ranks catches it and tells the first cause.
pub fn or_unwind<T>(result: Result<T, TransportError>) -> T {
    result.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
}

/// Runs `body` on `ranks` threads, each with its own end of a transport.
///
/// Each rank has a thread pool of its own, its share of the caller's, and `body` runs in it. In one
/// pool for all, kernels of a rank would wait behind those of others, and each would be handed over
/// between threads, of which there are more than cores then.
///
/// The results come in the order of ranks. If one rank fails, by an error or a panic, the waits of
/// all others end at once; the first cause is what is returned, and the others' are dropped.
///
/// # Errors
/// [`WorldError`] with the first cause.
///
/// # Panics
/// If the system gives no threads.
pub fn run_world<T: Send, E: Send + Display>(
    ranks: usize,
    deadline: Duration,
    body: impl Fn(Arc<dyn Transport>) -> Result<T, E> + Sync,
) -> Result<Vec<T>, WorldError<E>> {
    let hub = Hub::new(deadline);
    let pools: Vec<ThreadPool> = (0..ranks).map(|rank| pool(rank, ranks)).collect();
    let outcomes: Vec<Result<T, RankFailure<E>>> = std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (hub, body, pool) = (hub.clone(), &body, &pools[rank]);
            scope.spawn(move || pool.install(|| run_rank(&hub, rank, ranks, body)))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    let first = hub.failure().map(|failure| failure.rank);
    let mut results = Vec::with_capacity(ranks);
    let mut failures = Vec::new();
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(result) => results.push(result),
            Err(failure) => failures.push(WorldError { rank, failure }),
        }
    }
    // In a longer world what nobody reads would pile up.
    debug_assert!(
        !failures.is_empty() || hub.is_read(),
        "all ranks ended well, unread posts are left"
    );
    let cause = failures.iter().position(|error| Some(error.rank) == first).unwrap_or(0);
    if failures.is_empty() { Ok(results) } else { Err(failures.swap_remove(cause)) }
}

/// The threads of one rank. That a rank blocks in one of them while it waits for its peers holds up
/// nobody: whatever else runs in the pool is a part of what the rank does itself.
fn pool(rank: usize, ranks: usize) -> ThreadPool {
    let threads = (rayon::current_num_threads() / ranks).max(1);
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |thread| format!("rank-{rank}-{thread}"))
        .stack_size(STACK_BYTES)
        .build()
        .expect("threads for each rank")
}

fn run_rank<T, E: Display>(
    hub: &Arc<Hub>,
    rank: usize,
    ranks: usize,
    body: &(impl Fn(Arc<dyn Transport>) -> Result<T, E> + Sync),
) -> Result<T, RankFailure<E>> {
    let transport = Arc::new(Threads::world(hub.clone(), rank, ranks));
    let outcome = outcome(|| body(transport));
    match &outcome {
        Ok(_) => hub.leave(rank),
        Err(failure) => hub.fail(rank, &failure.to_string()),
    }
    outcome
}

/// What became of a rank's body.
pub(super) fn outcome<T, E>(body: impl FnOnce() -> Result<T, E>) -> Result<T, RankFailure<E>> {
    // Unwind safety: after a panic nothing of this rank is used again but its end of the
    // transport, which is whole: no code panics while it changes it.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(RankFailure::Error),
        Err(panic) => Err(of_panic(panic)),
    }
}

fn of_panic<E>(panic: Box<dyn Any + Send>) -> RankFailure<E> {
    let panic = match panic.downcast::<TransportError>() {
        Ok(error) => return RankFailure::Transport(*error),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    RankFailure::Panic(text.unwrap_or_else(|| "no message".to_owned()))
}

impl<E: Display> Display for RankFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Transport(error) => write!(f, "{error}"),
            Self::Panic(message) => write!(f, "panicked: {message}"),
        }
    }
}

impl<E: Display> Display for WorldError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.failure)
    }
}

impl<E: Debug + Display> Error for WorldError<E> {}
