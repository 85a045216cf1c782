//! Which rows a receiver accepts, and in which order they lie.

use std::ops::Range;

use super::super::send_order::exclusive_sums;
use crate::capacity::RaggedCapacity;

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
