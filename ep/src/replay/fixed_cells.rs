//! One cell for each source and expert.

use super::choices::{Choices, World};
use super::demand::Demand;
use super::footprint::{Footprint, RowFormat};
use super::{Rule, check_factor};
use crate::capacity::FixedCellCapacity;
use crate::counts::DispatchCounts;
use crate::error::EpError;

/// Fixed cells: a sender has so many rows for each expert, and all drops are its own. The design
/// that failed at scale, kept for comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixedCells {
    /// r: room of a cell relative to even demand.
    pub receiver: f64,
}

impl FixedCells {
    fn capacity(&self, choices: &Choices) -> FixedCellCapacity {
        let num_experts = choices.world().num_experts as u64;
        FixedCellCapacity::new(choices.assignments_per_shard(), num_experts, self.receiver)
    }
}

impl Rule for FixedCells {
    fn name(&self) -> &'static str {
        "fixed-cells"
    }

    fn validate(&self, world: World) -> Result<(), EpError> {
        world.validate()?;
        check_factor("receiver", self.receiver)
    }

    fn counts(&self, choices: &Choices, demand: &Demand) -> DispatchCounts {
        let capacity = self.capacity(choices);
        let kept_from = |source| {
            let limit = capacity.cell_limit(demand.valid_at(source), self.receiver);
            demand.from(source).iter().map(|&rows| rows.min(limit)).sum::<u64>()
        };
        let (valid, kept) = (demand.valid_all(), (0..demand.shards()).map(kept_from).sum());
        DispatchCounts {
            assignments: demand.assignments(),
            padding: demand.assignments() - valid,
            valid,
            kept,
            sender_dropped: valid - kept,
            receiver_dropped: 0,
        }
    }

    /// Buffers of the single exchange, E cells each: as sent, as received, the experts' input
    /// `[L, P cells, c]` and output, as returned, as received back. A cell's place says which
    /// expert it is for, so there is no header.
    fn footprint(&self, choices: &Choices, _: &Demand, payload: RowFormat) -> Footprint {
        let world = choices.world();
        let rows = world.num_experts as u64 * self.capacity(choices).cell_rows;
        let rows_per_shard = rows / world.shards as u64;
        Footprint {
            buffer_bytes: payload.bytes(6 * rows),
            expert_rows: rows,
            wire_bytes: payload.bytes(2 * (world.shards as u64 - 1) * rows_per_shard),
            header_bytes: 0,
        }
    }
}
