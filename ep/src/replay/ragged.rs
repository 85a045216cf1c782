//! Exact sizes, exchanged first.

use super::choices::{Choices, World};
use super::demand::Demand;
use super::footprint::{Footprint, RowFormat};
use super::{Rule, check_factor};
use crate::capacity::RaggedCapacity;
use crate::counts::DispatchCounts;
use crate::error::EpError;

/// Bytes of one count in the exchange of sizes.
const SIZE_BYTES: u64 = 4;

/// Ragged: senders send what receivers will take; a receiver's experts share the rows of their
/// chunk, earlier experts first, then earlier sources.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ragged {
    /// r: room of a shard relative to even demand.
    pub receiver: f64,
}

/// Rows that receivers take.
#[derive(Default)]
struct Taken {
    rows: u64,
    from_other_shards: u64,
}

impl Ragged {
    fn capacity(&self, choices: &Choices, demand: &Demand) -> RaggedCapacity {
        let World { shards, num_experts, .. } = choices.world();
        RaggedCapacity::new(
            choices.assignments_per_shard(),
            demand.valid_all(),
            shards as u64,
            num_experts as u64,
            self.receiver,
        )
    }

    fn taken(&self, choices: &Choices, demand: &Demand) -> Taken {
        let capacity = self.capacity(choices, demand);
        let chunk_experts = choices.world().local_experts() / capacity.chunks as usize;
        let mut taken = Taken::default();
        for shard in 0..demand.shards() {
            let mut room = 0;
            for (i, expert) in demand.experts_of(shard).enumerate() {
                if i.is_multiple_of(chunk_experts) {
                    room = capacity.chunk_rows;
                }
                for source in 0..demand.shards() {
                    let rows = demand.from(source)[expert].min(room);
                    room -= rows;
                    taken.rows += rows;
                    taken.from_other_shards += if source == shard { 0 } else { rows };
                }
            }
        }
        taken
    }
}

impl Rule for Ragged {
    fn name(&self) -> &'static str {
        "ragged"
    }

    fn validate(&self, world: World) -> Result<(), EpError> {
        world.validate()?;
        check_factor("receiver", self.receiver)
    }

    fn counts(&self, choices: &Choices, demand: &Demand) -> DispatchCounts {
        let (valid, kept) = (demand.valid_all(), self.taken(choices, demand).rows);
        DispatchCounts {
            assignments: demand.assignments(),
            padding: demand.assignments() - valid,
            valid,
            kept,
            sender_dropped: 0,
            receiver_dropped: valid - kept,
        }
    }

    /// Buffers: n rows sorted for sending, the experts' input and output of one chunk, n rows as
    /// received back. Wire: the rows taken, in the mean over shards, and the sizes of every shard
    /// for every expert, which each shard must know to find the same prefixes.
    fn footprint(&self, choices: &Choices, demand: &Demand, payload: RowFormat) -> Footprint {
        let (capacity, shards) = (self.capacity(choices, demand), demand.shards() as u64);
        let sent = self.taken(choices, demand).from_other_shards;
        let header_bytes = (shards - 1) * choices.world().num_experts as u64 * SIZE_BYTES;
        Footprint {
            buffer_bytes: payload
                .bytes(2 * choices.assignments_per_shard() + 2 * capacity.chunk_rows),
            expert_rows: capacity.chunks * capacity.chunk_rows,
            wire_bytes: payload.bytes(2 * sent) / shards + header_bytes,
            header_bytes,
        }
    }
}
