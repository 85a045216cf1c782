//! A world of processes, from this rank's start to its end.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::endpoint::{Endpoint, Standing};
use super::message::Message;
use super::processes::Processes;
use crate::transport::launch::outcome;
use crate::transport::threads::Failure;
use crate::transport::wait::Wait;
use crate::transport::{Call, Operation, RankFailure, Transport, TransportError, WorldError};

/// How long the rank that failed first waits for the others' ends before it ends them. Most take
/// a moment; one that computes hears of nothing.
const GRACE: Duration = Duration::from_secs(1);

/// Runs `body` as one rank of a world of processes, connected over MPI.
///
/// `mpirun -n 4 program` starts four processes of one program, and each calls this once, where a
/// world of threads would call [`run_world`](crate::transport::run_world). A program started
/// without `mpirun` is a world of one rank.
///
/// A rank that ends well stays until all others have, and gets its result. A rank that fails, by an
/// error or a panic, tells all others at once, and their waits end with its cause. When all bodies
/// have ended, or a second later, the rank that failed first calls `report`, on that rank only (if
/// none knew of another, the lowest that failed), and aborts all processes with the exit status that
/// it returned: from a failed run, this function returns on no rank. Whoever needs a rank that has ended is told so,
/// and whoever waits in vain fails when `deadline` has passed, at the end of the run too. A rank
/// that is killed, or leaves the process, makes `mpirun` end the others.
///
/// # Errors
/// [`TransportError::Library`] if MPI cannot be started, or was before.
///
/// # Example
/// ```no_run
/// use fulmar_ep::transport::{DEFAULT_DEADLINE, Group, run_mpi};
///
/// let ranks = run_mpi(
///     DEFAULT_DEADLINE,
///     |transport| Group::new(transport).sum_u64("ranks", &[1]),
///     |error| {
///         eprintln!("error: {error}");
///         1
///     },
/// );
/// assert!(ranks.expect("MPI")[0] >= 1);
/// ```
pub fn run_mpi<T, E: Display>(
    deadline: Duration,
    body: impl FnOnce(Arc<dyn Transport>) -> Result<T, E>,
    report: impl FnOnce(&WorldError<E>) -> u8,
) -> Result<T, TransportError> {
    let endpoint = Endpoint::connect(deadline)?;
    let world = Arc::new(Processes::world(endpoint.clone()));
    let outcome = outcome(|| body(world)).and_then(|result| {
        part_well(&endpoint).map_err(RankFailure::Transport)?;
        Ok(result)
    });
    match outcome {
        Ok(result) => {
            let wire = endpoint.state().close();
            wire.expect("a rank ends once").end();
            Ok(result)
        }
        Err(failure) => end_all(&endpoint, failure, report),
    }
}

/// Waits until every rank has ended well and nothing is under way between this one and them.
fn part_well(endpoint: &Endpoint) -> Result<(), TransportError> {
    let call = Call { operation: Operation::Barrier, label: "end of the run" };
    let members = (0..endpoint.ranks).collect();
    let (rank, started) = (endpoint.rank, Instant::now());
    let wait = Wait { rank, members, call, sequence: 0, words: Vec::new(), started };
    endpoint.state().tell(&Message::Ended);
    let mut leftovers = Vec::new();
    endpoint.poll(|state| {
        if let Some(Failure { rank, cause }) = state.failure() {
            return Some(Err(wait.lost(*rank, cause.clone())));
        }
        let missing = state.not_yet(Standing::Ended);
        if missing.is_empty() {
            leftovers.extend(state.receive_leftovers());
            leftovers.retain_mut(|receiving| !state.is_received(receiving));
            if leftovers.is_empty() && state.is_all_sent() {
                return Some(Ok(()));
            }
        }
        if wait.left(endpoint.deadline).is_some() {
            return None;
        }
        let error = wait.late(missing);
        state.fail(&error.to_string());
        Some(Err(error))
    })
}

/// Reports the first failure of the world, on one rank, and ends all.
fn end_all<E: Display>(
    endpoint: &Endpoint,
    failure: RankFailure<E>,
    report: impl FnOnce(&WorldError<E>) -> u8,
) -> ! {
    let rank = endpoint.rank;
    {
        let cause = failure.to_string();
        let mut state = endpoint.state();
        state.fail(&cause);
        state.tell(&Message::Stopped);
    }
    let stopped = Instant::now();
    let first = endpoint.poll(|state| {
        let all = state.not_yet(Standing::Stopped).is_empty();
        let first = state.failure().cloned();
        first.filter(|_| all || stopped.elapsed() > GRACE)
    });
    let mut status = 1;
    if first.rank == rank {
        status = report(&WorldError { rank, failure });
    } else {
        // The first rank ends this one. Should it be unable to, its cause must not be lost.
        endpoint.poll(|_| (stopped.elapsed() > 3 * GRACE).then_some(()));
        eprintln!("rank {}: {}", first.rank, first.cause);
    }
    // What was printed would be lost.
    std::io::stdout().flush().ok();
    endpoint.state().abort(status.into())
}
