//! Fixed pools, one for each destination and wave.

use rayon::prelude::*;

use super::choices::{Choices, World};
use super::demand::Demand;
use super::footprint::{Footprint, RowFormat};
use super::{Rule, check_factor};
use crate::capacity::PooledWaveCapacity;
use crate::counts::DispatchCounts;
use crate::error::EpError;

/// Fixed pooled-wave: a sender's assignments to one shard share a pool, dealt to waves in turn; a
/// receiver has so many rows an expert and wave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PooledWave {
    /// W: equal exchanges, one after another.
    pub waves: usize,
    /// s: room of a pool relative to even demand.
    pub sender: f64,
    /// r: room of an expert relative to even demand.
    pub receiver: f64,
}

impl PooledWave {
    fn capacity(&self, choices: &Choices) -> PooledWaveCapacity {
        let World { shards, num_experts, .. } = choices.world();
        PooledWaveCapacity::new(
            choices.assignments_per_shard(),
            shards as u64,
            num_experts as u64,
            self.waves as u64,
            (self.sender, self.receiver),
        )
    }

    /// Rows that `source` sends, by wave and expert (`[W, E]`).
    ///
    /// The assignment of rank a towards its destination goes to wave a mod W, position a div W;
    /// the positions below `pool` are exactly the ranks below `pool` x W.
    fn sent(&self, choices: &Choices, source: usize, pool: u64) -> Vec<u64> {
        let World { shards, num_experts, .. } = choices.world();
        let local_experts = choices.world().local_experts();
        let destination: Vec<usize> = (0..num_experts).map(|e| e / local_experts).collect();
        let mut sent = vec![0; self.waves * num_experts];
        let mut room = vec![pool * self.waves as u64; shards];
        let mut offset = vec![0; shards];
        choices.for_each_valid(source, |expert| {
            let to = destination[expert];
            if room[to] > 0 {
                room[to] -= 1;
                sent[offset[to] + expert] += 1;
                let next = offset[to] + num_experts;
                offset[to] = if next == sent.len() { 0 } else { next };
            }
        });
        sent
    }
}

impl Rule for PooledWave {
    fn name(&self) -> &'static str {
        "pooled-wave"
    }

    fn validate(&self, world: World) -> Result<(), EpError> {
        world.validate()?;
        check_factor("sender", self.sender)?;
        check_factor("receiver", self.receiver)?;
        let (waves, local_experts) = (self.waves, world.local_experts());
        if waves == 0 || !local_experts.is_multiple_of(waves) {
            return Err(EpError::Waves { waves, local_experts });
        }
        Ok(())
    }

    fn counts(&self, choices: &Choices, demand: &Demand) -> DispatchCounts {
        let (capacity, world) = (self.capacity(choices), choices.world());
        let sum = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let arrived = (0..world.shards)
            .into_par_iter()
            .map(|source| {
                let pool = capacity.pool_limit(demand.valid_at(source), self.sender);
                self.sent(choices, source, pool)
            })
            .reduce(|| vec![0; self.waves * world.num_experts], sum);
        let valid = demand.valid_all();
        let limit = capacity.expert_limit(valid, self.receiver);
        let sent: u64 = arrived.iter().sum();
        let kept: u64 = arrived.iter().map(|&rows| rows.min(limit)).sum();
        DispatchCounts {
            assignments: demand.assignments(),
            padding: demand.assignments() - valid,
            valid,
            kept,
            sender_dropped: valid - sent,
            receiver_dropped: sent - kept,
        }
    }

    /// Buffers of one wave: header and payload rows as sent and as received, the experts' input
    /// `[L, q, c]` and output, and the payload rows as returned and as received back.
    fn footprint(&self, choices: &Choices, _: &Demand, payload: RowFormat) -> Footprint {
        let (capacity, world) = (self.capacity(choices), choices.world());
        let (shards, waves) = (world.shards as u64, self.waves as u64);
        let header_rows = capacity.pool_rows.div_ceil(payload.width);
        let wave_rows = world.local_experts() as u64 * capacity.expert_rows;
        let there = shards * (header_rows + capacity.pool_rows);
        let back = shards * capacity.pool_rows;
        let pools = waves * (shards - 1);
        Footprint {
            buffer_bytes: payload.bytes(2 * there + 2 * wave_rows + 2 * back),
            expert_rows: waves * wave_rows,
            wire_bytes: payload.bytes(pools * (header_rows + 2 * capacity.pool_rows)),
            header_bytes: payload.bytes(pools * header_rows),
        }
    }
}
