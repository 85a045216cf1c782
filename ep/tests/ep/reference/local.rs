//! Local: every valid assignment reaches its expert.

use super::{Fate, Outcome, Problem};

/// Rows of an expert come in the order of shards, then in flat order. The rule knows one shard;
/// with several, this is what the other rules come to when nothing is dropped.
pub(super) fn outcome(problem: &Problem) -> Outcome {
    let mut outcome = Outcome::nothing_kept(problem, Fate::ReceiverDropped);
    for shard in 0..problem.shards() {
        for row in problem.valid_rows(shard) {
            outcome.keep(0, problem.expert(row), row);
        }
    }
    outcome
}
