//! Which cell each row comes from.
//!
//! Rows are dealt in blocks. A block holds an exact number of rows of every cell, and the order
//! within a block is a permutation by (seed, block): see [`MixturePlan`].

mod block;
mod config;
mod plan;
mod stage;

pub use block::PERIOD_BLOCKS;
pub use config::{DEFAULT_BLOCK_ROWS, MixtureConfig, Stage};
pub(crate) use config::{MAX_BLOCK_ROWS, require_block_rows};
pub use plan::{MixturePlan, Slot};
