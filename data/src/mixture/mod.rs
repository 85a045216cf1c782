//! Which cell each row comes from.
//!
//! Rows are dealt in blocks. A block holds an exact number of rows of every cell, and the order
//! within a block is a permutation by (seed, block): see [`MixturePlan`].

mod block;
mod cells;
mod config;
mod diff;
mod epoching;
mod file;
mod jump;
mod phases;
mod plan;
mod report;
mod run;
mod stage;

pub use block::PERIOD_BLOCKS;
pub use cells::{CellSize, CellTable};
pub use config::{DEFAULT_BLOCK_ROWS, MixtureConfig, Stage};
pub(crate) use config::{MAX_BLOCK_ROWS, require_block_rows};
pub use diff::{CellDiff, MixtureDiff};
pub use epoching::{FULL_RUN_TOKENS, SimulatedEpoching, Visible};
pub use file::{MixtureFile, PhaseEntry, PhaseWeights};
pub use phases::{Phase, stages_of_phases};
pub use plan::{MixturePlan, Slot};
pub use report::{CellReport, CellShare, MixtureReport, StageReport};
pub use run::{DEFAULT_MAX_EPOCHS, MixtureRun};
