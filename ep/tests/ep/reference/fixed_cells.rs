//! Fixed cells: one cell for each (source, expert).

use fulmar_ep::capacity::FixedCellCapacity;

use super::{Fate, Outcome, Problem};

/// A cell is "filled in flat order; what exceeds it is a sender drop". An expert has the cells of
/// all sources, in source order.
pub(super) fn outcome(problem: &Problem, receiver: f64) -> Outcome {
    let capacity = FixedCellCapacity::new(problem.n(), problem.num_experts as u64, receiver);
    let mut outcome = Outcome::nothing_kept(problem, Fate::SenderDropped);
    for source in 0..problem.shards() {
        let limit = capacity.cell_limit(problem.valid_here(source), receiver);
        for expert in 0..problem.num_experts {
            let mut filled = 0;
            for row in problem.valid_rows(source) {
                if problem.expert(row) == expert && filled < limit {
                    outcome.keep(0, expert, row);
                    filled += 1;
                }
            }
        }
    }
    outcome
}
