//! Ragged: each receiver has rows that its experts share.

use fulmar_ep::capacity::RaggedCapacity;

use super::{Fate, Outcome, Problem};

/// The experts of a shard form chunks of neighbours, each with its own rows; "within a chunk
/// earlier experts come first, then earlier sources; each (source, expert) group keeps a prefix".
pub(super) fn outcome(problem: &Problem, receiver: f64) -> Outcome {
    let (shards, local_experts) = (problem.shards(), problem.local_experts());
    let capacity = RaggedCapacity::new(
        problem.n(),
        problem.valid_all(),
        shards as u64,
        problem.num_experts as u64,
        receiver,
    );
    let chunks = capacity.chunks as usize;
    let chunk_experts = local_experts / chunks;
    let mut outcome = Outcome::nothing_kept(problem, Fate::ReceiverDropped);
    for destination in 0..shards {
        for chunk in 0..chunks {
            let mut taken = 0;
            let first_expert = destination * local_experts + chunk * chunk_experts;
            for expert in first_expert..first_expert + chunk_experts {
                for source in 0..shards {
                    for row in problem.valid_rows(source) {
                        if problem.expert(row) == expert && taken < capacity.chunk_rows {
                            outcome.keep(chunk, expert, row);
                            taken += 1;
                        }
                    }
                }
            }
        }
    }
    outcome
}
