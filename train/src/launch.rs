//! A run's ranks: one, threads of this process, or processes that MPI started.

use std::sync::Arc;

use fulmar_ep::World;
use fulmar_ep::transport::{RankFailure, Transport, WorldError, run_world};

use crate::config::RunConfig;
use crate::error::TrainError;
#[cfg(feature = "mpi")]
use crate::exit;
use crate::parallel::RankKind;

/// Runs `body` on every rank and returns what the first rank of this process returned.
///
/// Of processes that MPI started, a failure ends all: the first cause is printed once, and the exit
/// status is that of the cause ([`crate::exit`]).
///
/// # Errors
/// The first cause: the error of the rank that failed first, naming the rank where there are
/// several. All other ranks have ended then.
pub fn on_ranks<T: Send>(
    config: &RunConfig,
    body: impl Fn(&World) -> Result<T, TrainError> + Sync,
) -> Result<T, TrainError> {
    let parallel = &config.parallel;
    let ranks = parallel.layout().ranks();
    let of_rank = |transport| body(&meet(config, transport)?);
    match parallel.ranks {
        RankKind::Threads if ranks == 1 => body(&World::solo()),
        RankKind::Threads => {
            let results = run_world(ranks, parallel.deadline(), of_rank).map_err(cause)?;
            Ok(results.into_iter().next().expect("at least one rank"))
        }
        RankKind::Mpi => on_mpi(config, of_rank),
    }
}

/// This rank's world, once all ranks know that they run the same recipe.
///
/// # Errors
/// If there are other ranks than the recipe has, a rank runs another recipe, or a peer is lost.
pub fn meet(config: &RunConfig, transport: Arc<dyn Transport>) -> Result<World, TrainError> {
    let world = World::new(transport, config.parallel.layout())?;
    world.all.agree("recipe", config.digest())?;
    Ok(world)
}

#[cfg(feature = "mpi")]
fn on_mpi<T>(
    config: &RunConfig,
    body: impl Fn(Arc<dyn Transport>) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let report = |error: &WorldError<TrainError>| match &error.failure {
        RankFailure::Error(cause @ TrainError::Rank { .. }) => {
            eprintln!("error: {}", cause.chain());
            exit::status_of(cause)
        }
        RankFailure::Error(cause) => {
            eprintln!("error: rank {}: {}", error.rank, cause.chain());
            exit::status_of(cause)
        }
        RankFailure::Transport(_) => {
            eprintln!("error: {error}");
            exit::PEER_LOST
        }
        RankFailure::Panic(_) => {
            eprintln!("error: {error}");
            exit::OTHER
        }
    };
    Ok(fulmar_ep::transport::run_mpi(config.parallel.deadline(), body, report)?)
}

#[cfg(not(feature = "mpi"))]
fn on_mpi<T>(
    _config: &RunConfig,
    _body: impl Fn(Arc<dyn Transport>) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let rule = "`threads`: this build has no `mpi`; add `--features mpi` to cargo";
    Err(TrainError::config("parallel.ranks", "mpi", rule))
}

fn cause(error: WorldError<TrainError>) -> TrainError {
    let source = match error.failure {
        // All ranks know which one it was.
        RankFailure::Error(error @ TrainError::Rank { .. }) => return error,
        RankFailure::Error(error) => error,
        RankFailure::Transport(error) => error.into(),
        RankFailure::Panic(message) => TrainError::Panic { message },
    };
    TrainError::Rank { rank: error.rank, source: Box::new(source) }
}
