//! Which rows a receiver accepts, and in which order they lie.

use std::ops::Range;
use std::sync::Arc;

use super::super::choices::Choices;
use super::super::maps::NONE;
use crate::capacity::RaggedCapacity;
use crate::counts::DispatchCounts;
use crate::demand::Demand;
use crate::report::{DispatchReport, WireCounter, tokens_by_lost};

/// Rows that each receiver takes from each source for each expert.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acceptance {
    /// `[sources, E]`.
    pub(super) accepted: Vec<Vec<usize>>,
}

impl Acceptance {
    /// Fills each chunk of a receiver's experts expert by expert, source by source; `counts`
    /// `[sources, E]` are the rows there are.
    pub(super) fn new(counts: &[Vec<u64>], capacity: RaggedCapacity) -> Self {
        let shards = counts.len();
        let num_experts = counts[0].len() - 1;
        let chunk_experts = num_experts / shards / capacity.chunks as usize;
        let mut accepted = vec![vec![0; num_experts]; shards];
        for first in (0..num_experts).step_by(chunk_experts) {
            let mut room = capacity.chunk_rows;
            for expert in first..first + chunk_experts {
                for (source, counts) in counts.iter().enumerate() {
                    let taken = counts[expert].min(room);
                    accepted[source][expert] = taken as usize;
                    room -= taken;
                }
            }
        }
        Self { accepted }
    }

    /// Rows that shard `rank` sends to each shard.
    pub(super) fn sent_by(&self, rank: usize) -> Vec<usize> {
        let local_experts = self.accepted[0].len() / self.accepted.len();
        self.accepted[rank].chunks(local_experts).map(|rows| rows.iter().sum()).collect()
    }

    /// Rows that shard `rank` gets from each shard.
    pub(super) fn received_by(&self, rank: usize) -> Vec<usize> {
        (0..self.accepted.len()).map(|source| self.sent_by(source)[rank]).collect()
    }
}

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
        let assignments = self.row_of.len() as u64;
        let valid = demand.valid_here() * k as u64;
        let kept = self.row_of.iter().filter(|row| **row != NONE).count() as u64;
        let counts = DispatchCounts {
            assignments,
            padding: assignments - valid,
            valid,
            kept,
            sender_dropped: 0,
            receiver_dropped: valid - kept,
        };
        let tokens_by_lost =
            tokens_by_lost(demand.token_valid(), k, |assignment| self.row_of[assignment] == NONE);
        DispatchReport { counts, tokens_by_lost, wire }
    }
}

/// The expert row of each arrived row, and the rows of each local expert: rows arrive by source and
/// are laid out by expert, within one by source.
pub(super) fn arrival_rows(
    accepted: &[Vec<usize>],
    local_experts: Range<usize>,
) -> (Vec<i32>, Vec<usize>) {
    let of_expert = |expert: usize| accepted.iter().map(move |rows| rows[expert]).sum();
    let group_sizes: Vec<usize> = local_experts.clone().map(of_expert).collect();
    let mut next = exclusive_sums(&group_sizes);
    let mut row_of = Vec::with_capacity(group_sizes.iter().sum());
    for of_source in accepted {
        for (next, &rows) in next.iter_mut().zip(&of_source[local_experts.clone()]) {
            row_of.extend((*next..*next + rows).map(|row| row as i32));
            *next += rows;
        }
    }
    (row_of, group_sizes)
}

fn exclusive_sums(sizes: &[usize]) -> Vec<usize> {
    let starts = sizes.iter().scan(0, |sum, size| {
        let start = *sum;
        *sum += size;
        Some(start)
    });
    starts.collect()
}
