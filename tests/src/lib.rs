//! What the tests of several crates share: golden cases and comparisons.

pub mod compare;
pub mod golden;
pub mod made_up;
pub mod memory;
pub mod model;
pub mod mpi;
pub mod names;
#[cfg(feature = "cloud")]
pub mod s3_server;
