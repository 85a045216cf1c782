//! Which tokens want which experts.

use super::Row;

/// The routing decisions of all shards for one layer.
///
/// Axis letters: p shards, t tokens of a shard, k experts per token. An assignment is counted flat,
/// as token times k plus slot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    /// E, over all shards; a multiple of their number.
    pub(crate) num_experts: usize,
    /// k.
    pub(crate) k: usize,
    /// [p][t k]: global expert ids. Shards may differ in t.
    pub(crate) selected: Vec<Vec<usize>>,
    /// [p][t]: false for padding, whose ids mean nothing.
    pub(crate) valid: Vec<Vec<bool>>,
}

impl Problem {
    /// P.
    pub(crate) fn shards(&self) -> usize {
        self.selected.len()
    }

    /// L, the experts of one shard.
    pub(crate) fn local_experts(&self) -> usize {
        self.num_experts / self.shards()
    }

    /// The shard that holds an expert.
    pub(crate) fn owner(&self, expert: usize) -> usize {
        expert / self.local_experts()
    }

    /// The expert that an assignment wants.
    pub(crate) fn expert(&self, row: Row) -> usize {
        self.selected[row.shard][row.assignment]
    }

    /// n: assignments of the largest shard, from which physical capacities follow. Shards of fewer
    /// tokens have the same buffers.
    pub(crate) fn n(&self) -> u64 {
        self.selected.iter().map(|shard| shard.len() as u64).max().unwrap_or(0)
    }

    /// Assignments of all shards, padding included.
    pub(crate) fn all(&self) -> u64 {
        self.selected.iter().map(|shard| shard.len() as u64).sum()
    }

    /// Valid assignments of one shard, in flat (token-major, slot) order.
    pub(crate) fn valid_rows(&self, shard: usize) -> Vec<Row> {
        (0..self.selected[shard].len())
            .filter(|assignment| self.valid[shard][assignment / self.k])
            .map(|assignment| Row { shard, assignment })
            .collect()
    }

    /// Number of valid assignments of one shard.
    pub(crate) fn valid_here(&self, shard: usize) -> u64 {
        self.valid_rows(shard).len() as u64
    }

    /// Number of valid assignments of all shards.
    pub(crate) fn valid_all(&self) -> u64 {
        (0..self.shards()).map(|shard| self.valid_here(shard)).sum()
    }
}
