//! What each exchange rule does with given choices: exact counts, without moving a row.
//!
//! A [`Rule`] answers from [`Choices`] alone, because where an assignment goes, and whether there
//! is room for it, depends on expert ids and on their order, never on the rows. Which tokens are
//! dropped is not asked, only how many; so receivers need no order, and a whole rack's batch (64
//! shards of 65,536 tokens) takes a fraction of a second.
//!
//! Letters: P shards, E experts, L = E / P experts of a shard, n assignments of a shard, c width of
//! a row.
//!
//! # Source
//! SPEC section 3; capacities are those of [`crate::capacity`].

mod choices;
mod demand;
mod fixed_cells;
mod footprint;
mod pooled_wave;
mod ragged;
mod ring;

#[cfg(test)]
mod tests;

pub use choices::{Choices, World};
pub use demand::Demand;
pub use fixed_cells::FixedCells;
pub use footprint::{Footprint, RowFormat};
pub use pooled_wave::PooledWave;
pub use ragged::Ragged;
pub use ring::Ring;

use crate::counts::DispatchCounts;
use crate::error::EpError;

/// A way to bring assignments to their experts in limited room.
pub trait Rule: Sync {
    /// What the rule is called.
    fn name(&self) -> &'static str;

    /// Confirms that the rule can run in `world`.
    ///
    /// # Errors
    /// If a factor is of no use, or the rule's sizes do not fit the world's.
    fn validate(&self, world: World) -> Result<(), EpError>;

    /// Where all assignments of all shards go. `demand` is that of `choices`.
    fn counts(&self, choices: &Choices, demand: &Demand) -> DispatchCounts;

    /// What a forward pass of one layer holds and sends.
    fn footprint(&self, choices: &Choices, demand: &Demand, payload: RowFormat) -> Footprint;
}

/// A rule's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Where all assignments went.
    pub counts: DispatchCounts,
    /// What it took.
    pub footprint: Footprint,
}

impl Replay {
    /// The answer of `rule`, with counts that add up.
    ///
    /// # Errors
    /// As [`Rule::validate`], and [`EpError::CountIdentity`].
    pub fn of(
        rule: &dyn Rule,
        choices: &Choices,
        demand: &Demand,
        payload: RowFormat,
    ) -> Result<Self, EpError> {
        rule.validate(choices.world())?;
        let counts = rule.counts(choices, demand).check()?;
        Ok(Self { counts, footprint: rule.footprint(choices, demand, payload) })
    }
}

/// Largest factor: far beyond any that still drops, and small enough for bytes to fit 64 bits.
const MAX_FACTOR: f64 = 1e6;

/// Confirms that a capacity factor is above 0 and not beyond all use.
fn check_factor(name: &'static str, found: f64) -> Result<(), EpError> {
    let is_usable = found > 0.0 && found <= MAX_FACTOR;
    if is_usable { Ok(()) } else { Err(EpError::Factor { name, found, most: MAX_FACTOR }) }
}
