//! How many rows each rule of SPEC section 3 has room for, in integers.
//!
//! A *physical* capacity sizes a buffer and follows from shapes alone, so that all ranks agree on
//! it; a *logical* limit follows from the demand of a batch, so that padding takes no room. Counts
//! are assignments: tokens times experts per token.
//!
//! Letters: n assignments of the largest shard's batch, P shards, E experts, L = E / P experts of a
//! shard, W waves.

/// `ceil(count * factor / divisor)` in f64 and in this order, as the reference computes it: for a
/// factor of 1.1 the result may be one above the exact ceiling.
pub fn scaled_ceil(count: u64, factor: f64, divisor: u64) -> u64 {
    (count as f64 * factor / divisor as f64).ceil() as u64
}

/// `value` moved into `low..=high`; `high` wins where the two cross.
fn clamp(value: u64, low: u64, high: u64) -> u64 {
    value.max(low).min(high)
}

/// Sizes of a fixed pooled-wave exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledWaveCapacity {
    /// p: rows of the pool for one destination in one wave.
    pub pool_rows: u64,
    /// q: rows of one local expert in one wave.
    pub expert_rows: u64,
    shards: u64,
    num_experts: u64,
    waves: u64,
}

impl PooledWaveCapacity {
    /// For `n` assignments a shard; `sender` and `receiver` are the factors s and r.
    pub fn new(
        n: u64,
        shards: u64,
        num_experts: u64,
        waves: u64,
        (sender, receiver): (f64, f64),
    ) -> Self {
        let local_experts = num_experts / shards;
        Self {
            pool_rows: scaled_ceil(n, sender, shards * waves).max(1),
            expert_rows: scaled_ceil(n, receiver, local_experts * waves).max(1),
            shards,
            num_experts,
            waves,
        }
    }

    /// Rows of a pool that a shard with `valid_here` valid assignments fills at most.
    pub fn pool_limit(&self, valid_here: u64, sender: f64) -> u64 {
        clamp(scaled_ceil(valid_here, sender, self.shards * self.waves), 1, self.pool_rows)
    }

    /// Rows that an expert takes at most in a wave when all shards have `valid_all` together.
    pub fn expert_limit(&self, valid_all: u64, receiver: f64) -> u64 {
        clamp(scaled_ceil(valid_all, receiver, self.num_experts * self.waves), 1, self.expert_rows)
    }
}

/// Sizes of a ragged receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaggedCapacity {
    /// Chunks of neighbouring local experts with a capacity of their own: 2 when L is even, else 1.
    pub chunks: u64,
    /// Rows that the experts of a chunk take together.
    pub chunk_rows: u64,
}

impl RaggedCapacity {
    /// For `n` assignments a shard of which all shards together have `valid_all` valid ones.
    pub fn new(n: u64, valid_all: u64, shards: u64, num_experts: u64, receiver: f64) -> Self {
        let local_experts = num_experts / shards;
        let most = local_experts.max(scaled_ceil(n, receiver, 1));
        let rows = clamp(scaled_ceil(valid_all, receiver, shards), local_experts, most);
        let chunks = ragged_chunks(local_experts);
        let chunk_rows = if chunks == 1 { rows } else { rows.div_ceil(2).max(local_experts / 2) };
        Self { chunks, chunk_rows }
    }
}

/// Chunks of a shard with `local_experts` experts.
pub fn ragged_chunks(local_experts: u64) -> u64 {
    if local_experts.is_multiple_of(2) { 2 } else { 1 }
}

/// The factor from which a ragged receiver cannot drop: a chunk then holds every row there is.
pub fn ragged_dropless_factor(shards: u64, num_experts: u64) -> f64 {
    (shards * ragged_chunks(num_experts / shards)) as f64
}

/// Sizes of the cells of the fixed-cell exchange, one for each source and expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedCellCapacity {
    /// Rows of a cell.
    pub cell_rows: u64,
    num_experts: u64,
}

impl FixedCellCapacity {
    /// For `n` assignments a shard.
    pub fn new(n: u64, num_experts: u64, receiver: f64) -> Self {
        Self { cell_rows: scaled_ceil(n, receiver, num_experts).max(1), num_experts }
    }

    /// Rows of a cell that a shard with `valid_here` valid assignments fills at most.
    pub fn cell_limit(&self, valid_here: u64, receiver: f64) -> u64 {
        clamp(scaled_ceil(valid_here, receiver, self.num_experts), 1, self.cell_rows)
    }
}

/// Assignments that one shard of a ring computes at most, of `all` assignments (padding included)
/// of which `valid_all` are valid.
pub fn ring_limit(all: u64, valid_all: u64, shards: u64, num_experts: u64, receiver: f64) -> u64 {
    let local_experts = num_experts / shards;
    let most = all.min(local_experts.max(scaled_ceil(all, receiver, shards)));
    clamp(scaled_ceil(valid_all, receiver, shards), local_experts, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_that_of_f64_in_the_reference_order() {
        // 50 * 1.1 is 55.00000000000001 in f64.
        assert_eq!(scaled_ceil(50, 1.1, 1), 56);
        assert_eq!(scaled_ceil(10, 1.0, 3), 4);
    }

    #[test]
    fn the_hero_run_has_these_rows() {
        // 65,536 tokens a shard, top-8, 64 shards, 384 experts, three waves, both factors 1.15.
        let hero = PooledWaveCapacity::new(65_536 * 8, 64, 384, 3, (1.15, 1.15));
        assert_eq!((hero.pool_rows, hero.expert_rows), (3_141, 33_497));
        assert_eq!(hero.pool_limit(0, 1.15), 1);
        assert_eq!(hero.expert_limit(u64::from(u32::MAX), 1.15), 33_497);
    }

    #[test]
    fn a_dropless_receiver_has_room_for_everything_in_each_chunk() {
        for (shards, num_experts) in [(4, 12), (4, 16), (1, 6), (8, 384)] {
            let (n, factor) = (37 * 3, ragged_dropless_factor(shards, num_experts));
            let capacity = RaggedCapacity::new(n, n * shards, shards, num_experts, factor);
            assert!(capacity.chunk_rows >= n * shards, "{shards} shards, {num_experts} experts");
        }
    }

    #[test]
    fn a_ring_with_a_factor_of_all_shards_takes_everything() {
        assert_eq!(ring_limit(600, 600, 4, 12, 4.0), 600);
        assert_eq!(ring_limit(600, 0, 4, 12, 4.0), 3);
    }
}
