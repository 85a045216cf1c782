//! Ring: every shard sees all assignments and computes those of its own experts.

use fulmar_ep::capacity::ring_limit;

use super::{Fate, Outcome, Problem};

/// "Each shard takes at most [`ring_limit`] assignments in (local expert, flat position) order, the
/// rest are dropped": flat over the world, so shard after shard, and drops are the receiver's.
pub(super) fn outcome(problem: &Problem, receiver: f64) -> Outcome {
    let (shards, local_experts) = (problem.shards(), problem.local_experts());
    let limit = ring_limit(
        problem.all(),
        problem.valid_all(),
        shards as u64,
        problem.num_experts as u64,
        receiver,
    );
    let mut outcome = Outcome::nothing_kept(problem, Fate::ReceiverDropped);
    for destination in 0..shards {
        let mut taken = 0;
        for expert in destination * local_experts..(destination + 1) * local_experts {
            for source in 0..shards {
                for row in problem.valid_rows(source) {
                    if problem.expert(row) == expert && taken < limit {
                        outcome.keep(0, expert, row);
                        taken += 1;
                    }
                }
            }
        }
    }
    outcome
}
