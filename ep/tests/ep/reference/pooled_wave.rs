//! Fixed pooled-wave: in each wave, one pool for each (source, destination).

use std::collections::BTreeMap;

use fulmar_ep::capacity::PooledWaveCapacity;

use super::{Fate, Outcome, Problem, Row};

/// Senders fill pools, then receivers rank what arrived.
pub(super) fn outcome(problem: &Problem, waves: usize, sender: f64, receiver: f64) -> Outcome {
    let capacity = PooledWaveCapacity::new(
        problem.n(),
        problem.shards() as u64,
        problem.num_experts as u64,
        waves as u64,
        (sender, receiver),
    );
    let arriving =
        send(problem, waves, |source| capacity.pool_limit(problem.valid_here(source), sender));
    let limit = capacity.expert_limit(problem.valid_all(), receiver);
    receive(problem, &arriving, limit)
}

/// Where a row travels. The order of the fields is the order of arrival at a destination, "position
/// 0 of every source in source order, then position 1 ...", wave after wave.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    destination: usize,
    wave: usize,
    position: usize,
    source: usize,
}

/// "A valid assignment has rank a among this shard's valid assignments to the same destination
/// shard, in flat order; wave = a mod W, position = a div W; kept by the sender iff position <
/// pool."
fn send(problem: &Problem, waves: usize, pool_of: impl Fn(usize) -> u64) -> BTreeMap<Place, Row> {
    let mut places = BTreeMap::new();
    for source in 0..problem.shards() {
        let pool = pool_of(source);
        let mut next_rank = vec![0; problem.shards()];
        for row in problem.valid_rows(source) {
            let destination = problem.owner(problem.expert(row));
            let rank = next_rank[destination];
            next_rank[destination] += 1;
            let (wave, position) = (rank % waves, rank / waves);
            if (position as u64) < pool {
                places.insert(Place { destination, wave, position, source }, row);
            }
        }
    }
    places
}

/// "The receiver ranks arriving rows per expert in payload-position order; ranks restart in every
/// wave; kept iff rank < rows."
fn receive(problem: &Problem, arriving: &BTreeMap<Place, Row>, limit: u64) -> Outcome {
    let mut outcome = Outcome::nothing_kept(problem, Fate::SenderDropped);
    for (place, &row) in arriving {
        let expert = problem.expert(row);
        if outcome.group_size(place.wave, expert) < limit {
            outcome.keep(place.wave, expert, row);
        } else {
            outcome.set(row, Fate::ReceiverDropped);
        }
    }
    outcome
}
