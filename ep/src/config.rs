//! Which exchange carries rows to experts, and its settings.

use serde::{Deserialize, Serialize};

use crate::error::EpError;
use crate::exchange::Payload;

/// Ids up to this one are exact in bfloat16, whose significand has 8 bits.
const LARGEST_BF16_ID: usize = 256;

/// Ids up to this one are exact in f32.
const LARGEST_F32_ID: usize = 1 << 24;

/// The rules of SPEC section 3, each with its settings.
///
/// Factors say how much room there is, as a multiple of the mean demand: 1.0 has room for a
/// perfectly even load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DispatchConfig {
    /// Every expert on this shard; nothing travels and nothing is dropped.
    #[default]
    Local,
    /// Equal exchanges through pools shared by the experts of a destination, in waves.
    PooledWave {
        /// W, at least 1; divides the experts of a shard. 3 in the hero run.
        #[serde(default = "hero_waves")]
        num_expert_waves: usize,
        /// r, room of a local expert. 1.15 in the hero run.
        #[serde(default = "hero_factor")]
        capacity_factor: f64,
        /// s, room of the pool for a destination. 1.15 in the hero run from its launch.
        #[serde(default = "hero_factor")]
        transport_capacity_factor: f64,
        /// The type of rows on the wire.
        #[serde(default)]
        payload: Payload,
    },
    /// Exchanges of exactly the rows that are accepted.
    Ragged {
        /// r, room of a shard for rows of its experts together. Without it there is room for
        /// everything: nothing is dropped.
        #[serde(default)]
        capacity_factor: Option<f64>,
        /// The type of rows on the wire.
        #[serde(default)]
        payload: Payload,
    },
    /// Equal exchanges through a cell for each source and expert.
    FixedCells {
        /// r, room of a cell.
        #[serde(default = "hero_factor")]
        capacity_factor: f64,
        /// The type of rows on the wire.
        #[serde(default)]
        payload: Payload,
    },
    /// All rows to all shards, and sums of what their experts make of them back.
    Ring {
        /// r, room of a shard for assignments to its experts together. Without it there is room
        /// for everything.
        #[serde(default)]
        capacity_factor: Option<f64>,
        /// The type of rows on the wire.
        #[serde(default)]
        payload: Payload,
    },
}

fn hero_waves() -> usize {
    3
}

fn hero_factor() -> f64 {
    1.15
}

impl DispatchConfig {
    /// The hero run's exchange at its launch.
    pub const fn pooled_wave() -> Self {
        Self::PooledWave {
            num_expert_waves: 3,
            capacity_factor: 1.15,
            transport_capacity_factor: 1.15,
            payload: Payload::F32,
        }
    }

    /// The ragged exchange that cannot drop.
    pub const fn dropless() -> Self {
        Self::Ragged { capacity_factor: None, payload: Payload::F32 }
    }

    /// The name that a recipe gives as `kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::PooledWave { .. } => "pooled_wave",
            Self::Ragged { .. } => "ragged",
            Self::FixedCells { .. } => "fixed_cells",
            Self::Ring { .. } => "ring",
        }
    }

    /// Checks every rule that spans these settings, the experts and the shards.
    ///
    /// # Errors
    /// [`EpError::Config`] naming the first field that breaks one.
    pub fn validate(&self, num_experts: usize, shards: usize) -> Result<(), EpError> {
        if shards == 0 || !num_experts.is_multiple_of(shards) {
            let needed = format!("a number that divides {num_experts} experts");
            return refuse("shards", shards, needed);
        }
        let local_experts = num_experts / shards;
        match *self {
            Self::Local if shards > 1 => {
                let needed = format!("a kind that exchanges rows, for {shards} shards");
                refuse("kind", "local", needed)
            }
            Self::Local => Ok(()),
            Self::PooledWave {
                num_expert_waves: waves,
                capacity_factor,
                transport_capacity_factor,
                payload,
            } => {
                factor("capacity_factor", capacity_factor)?;
                factor("transport_capacity_factor", transport_capacity_factor)?;
                if waves == 0 || !local_experts.is_multiple_of(waves) {
                    let needed = format!("a number that divides {local_experts} local experts");
                    return refuse("num_expert_waves", waves, needed);
                }
                ids(payload, local_experts)
            }
            Self::FixedCells { capacity_factor, payload } => {
                factor("capacity_factor", capacity_factor)?;
                ids(payload, local_experts)
            }
            Self::Ragged { capacity_factor, .. } | Self::Ring { capacity_factor, .. } => {
                capacity_factor.map_or(Ok(()), |value| factor("capacity_factor", value))
            }
        }
    }
}

fn factor(field: &'static str, value: f64) -> Result<(), EpError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    refuse(field, value, "a finite number above 0".to_owned())
}

/// Ids travel in the type of the rows; one more than the experts of a shard, for `empty`.
fn ids(payload: Payload, local_experts: usize) -> Result<(), EpError> {
    let largest = match payload {
        Payload::F32 => LARGEST_F32_ID,
        Payload::Bf16 => LARGEST_BF16_ID,
    };
    if local_experts < largest {
        return Ok(());
    }
    let needed = format!(
        "a type that carries ids up to {local_experts} exactly; this one does below {largest}"
    );
    refuse("payload", format!("{payload:?}").to_lowercase(), needed)
}

fn refuse(field: &'static str, found: impl ToString, needed: String) -> Result<(), EpError> {
    Err(EpError::Config { field, found: found.to_string(), needed })
}
