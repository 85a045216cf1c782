//! All tokens everywhere.

use super::choices::{Choices, World};
use super::demand::Demand;
use super::footprint::{Footprint, RowFormat};
use super::{Rule, check_factor};
use crate::capacity::ring_limit;
use crate::counts::DispatchCounts;
use crate::error::EpError;

/// Ring: every shard sees all tokens and computes what its own experts were chosen for, up to a
/// limit; partial sums go back by reduce-scatter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ring {
    /// r: room of a shard relative to even demand.
    pub receiver: f64,
}

impl Ring {
    fn limit(&self, choices: &Choices, all: u64, valid_all: u64) -> u64 {
        let World { shards, num_experts, .. } = choices.world();
        ring_limit(all, valid_all, shards as u64, num_experts as u64, self.receiver)
    }
}

impl Rule for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn validate(&self, world: World) -> Result<(), EpError> {
        world.validate()?;
        check_factor("receiver", self.receiver)
    }

    fn counts(&self, choices: &Choices, demand: &Demand) -> DispatchCounts {
        let (all, valid) = (demand.assignments(), demand.valid_all());
        let limit = self.limit(choices, all, valid);
        let kept_by = |shard| {
            let experts = demand.experts_of(shard);
            let rows = |source| demand.from(source)[experts.clone()].iter().sum::<u64>();
            (0..demand.shards()).map(rows).sum::<u64>().min(limit)
        };
        let kept = (0..demand.shards()).map(kept_by).sum();
        DispatchCounts {
            assignments: all,
            padding: all - valid,
            valid,
            kept,
            sender_dropped: 0,
            receiver_dropped: valid - kept,
        }
    }

    /// Buffers: one row of each token of all shards as gathered, one for its partial sum, and the
    /// experts' input and output. Wire: each shard sends, or passes on, one row of each token of
    /// the other shards, there and back. Expert ids and combine weights travel along, in 8 bytes
    /// an assignment, and are the header.
    fn footprint(&self, choices: &Choices, demand: &Demand, payload: RowFormat) -> Footprint {
        let (world, all) = (choices.world(), demand.assignments());
        let expert_rows = self.limit(choices, all, all);
        let tokens = all / world.experts_per_token as u64;
        let others = tokens / world.shards as u64 * (world.shards as u64 - 1);
        let header_bytes = 8 * others * world.experts_per_token as u64;
        Footprint {
            buffer_bytes: payload.bytes(2 * tokens + 2 * expert_rows),
            expert_rows,
            wire_bytes: payload.bytes(2 * others) + header_bytes,
            header_bytes,
        }
    }
}
