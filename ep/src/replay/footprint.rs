//! What an exchange costs.

use serde::Serialize;

/// The rows that travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RowFormat {
    /// c: elements of a row.
    pub width: u64,
    /// Bytes of an element; 2 for bf16.
    pub element_bytes: u64,
}

impl RowFormat {
    /// Bytes of that many rows.
    pub fn bytes(&self, rows: u64) -> u64 {
        rows * self.width * self.element_bytes
    }
}

/// Memory and traffic of one shard in one layer's forward pass.
///
/// Each rule says which buffers it counts. None counts what it shares with all others: the tokens'
/// own rows and sums, weights and inner activations of the experts, and what backward keeps.
/// Waves and chunks follow one another, so the buffers of one are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Bytes of the buffers that the rule needs at once.
    pub buffer_bytes: u64,
    /// Physical rows of expert input, all waves and chunks together.
    pub expert_rows: u64,
    /// Bytes sent to other shards, there and back.
    pub wire_bytes: u64,
    /// The part of `wire_bytes` that tells where rows belong.
    pub header_bytes: u64,
}
