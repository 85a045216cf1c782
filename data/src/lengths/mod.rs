//! Rows whose length changes in the course of a run.
//!
//! All of it is arithmetic over tokens: no data are needed to plan a change, and the row, the block
//! and the batch of any place of a run follow by division.

mod batches;
mod config;
mod plan;

pub use batches::BatchPlan;
pub use config::{LengthChange, RowLengths};
pub use plan::{LengthPlan, LengthStage};
