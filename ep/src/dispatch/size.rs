//! How much a pass through each dispatcher holds, before there is one.

use serde::Serialize;

use crate::capacity::{FixedCellCapacity, PooledWaveCapacity};
use crate::config::DispatchConfig;

/// What one layer's pass holds on one shard, if loads are even and no token is padding. A word is
/// a float or an index, 4 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WaySize {
    /// Rows of local experts, the empty ones of fixed sizes included.
    pub expert_rows: u64,
    /// Those of one wave.
    pub wave_rows: u64,
    /// Rows of results where their tokens are, as the weighted sum and its backward read them.
    pub returned_rows: u64,
    /// Weights of that sum.
    pub weights: u64,
    /// Words of maps and headers, which take the way again.
    pub decision_words: u64,
    /// Words that exchanges deliver, which [`Keep::Rows`](super::Keep::Rows) keeps.
    pub delivered_words: u64,
    /// Words of the buffers of one exchange, sent and arrived.
    pub buffer_words: u64,
}

impl DispatchConfig {
    /// The size of a pass of `tokens` tokens with `k` of `num_experts` experts each, in rows of
    /// `width`, among `shards` shards.
    pub fn way_size(
        &self,
        tokens: u64,
        k: u64,
        width: u64,
        num_experts: u64,
        shards: u64,
    ) -> WaySize {
        let (n, local_experts) = (tokens * k, num_experts / shards);
        let exact = WaySize {
            expert_rows: n,
            wave_rows: n,
            returned_rows: n,
            weights: n,
            ..WaySize::default()
        };
        match *self {
            Self::Local => WaySize { decision_words: 2 * n, ..exact },
            Self::Ragged { .. } => WaySize {
                decision_words: 4 * n,
                delivered_words: 2 * n * width,
                buffer_words: 2 * n * width,
                ..exact
            },
            Self::Ring { .. } => WaySize {
                weights: shards * n,
                decision_words: shards * n + n,
                delivered_words: (shards + 1) * tokens * width + shards * n,
                buffer_words: (shards + 1) * tokens * width,
                ..exact
            },
            Self::FixedCells { capacity_factor, .. } => {
                let capacity = FixedCellCapacity::new(n, num_experts, capacity_factor);
                let slots = local_experts * capacity.cell_rows;
                let (header, bare) = (shards * slots.div_ceil(width), shards * slots);
                WaySize {
                    returned_rows: bare,
                    // Sent, compact, arrived and returned.
                    decision_words: 4 * n + 3 * bare + 2 * header + header * width,
                    delivered_words: (header + 2 * bare) * width,
                    buffer_words: 2 * (header + bare) * width,
                    ..exact
                }
            }
            Self::PooledWave {
                num_expert_waves,
                capacity_factor,
                transport_capacity_factor,
                ..
            } => {
                let waves = num_expert_waves as u64;
                let factors = (transport_capacity_factor, capacity_factor);
                let capacity = PooledWaveCapacity::new(n, shards, num_experts, waves, factors);
                let header = shards * capacity.pool_rows.div_ceil(width);
                let frame = header + shards * capacity.pool_rows;
                let wave_rows = local_experts * capacity.expert_rows;
                WaySize {
                    expert_rows: waves * wave_rows,
                    wave_rows,
                    returned_rows: waves * frame,
                    weights: n,
                    // Sent and arrived with their headers, and what comes back of all waves.
                    decision_words: waves * (n + 2 * frame + wave_rows + 2 * header * width)
                        + n
                        + waves * frame,
                    delivered_words: 2 * waves * frame * width,
                    buffer_words: 2 * frame * width,
                }
            }
        }
    }
}
