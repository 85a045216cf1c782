//! Rows in the order of their experts, as many of each as are accepted.

use std::sync::Arc;

use super::NONE;
use super::choices::Choices;
use crate::demand::Demand;
use crate::report::{DispatchReport, WireCounter};

/// The rows of one sender: by expert, within one in flat order.
#[derive(Debug)]
pub(super) struct SendOrder {
    /// The row of each assignment `[t k]`.
    pub(super) row_of: Vec<i32>,
}

impl SendOrder {
    /// Of each expert's rows, the first `accepted` `[E]` are sent.
    pub(super) fn new(choices: &Choices, num_assignments: usize, accepted: &[usize]) -> Self {
        let mut next = exclusive_sums(accepted);
        let mut left = accepted.to_vec();
        let mut row_of = vec![NONE; num_assignments];
        for &(assignment, expert) in &choices.assignments {
            if left[expert] > 0 {
                row_of[assignment] = next[expert] as i32;
                next[expert] += 1;
                left[expert] -= 1;
            }
        }
        Self { row_of }
    }

    /// What became of the assignments; every drop is the receiver's.
    pub(super) fn report(
        &self,
        demand: &Demand,
        k: usize,
        wire: Arc<WireCounter>,
    ) -> DispatchReport {
        let is_kept = |assignment: usize| self.row_of[assignment] != NONE;
        DispatchReport::new(demand.token_valid(), k, 0, is_kept, wire)
    }
}

/// Where runs of these lengths begin when they follow each other.
pub(super) fn exclusive_sums(sizes: &[usize]) -> Vec<usize> {
    let starts = sizes.iter().scan(0, |sum, size| {
        let start = *sum;
        *sum += size;
        Some(start)
    });
    starts.collect()
}
