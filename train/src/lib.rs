#![doc = include_str!("../README.md")]

pub mod cli;
pub mod config;
pub mod recipe;

pub mod optim;
pub mod state;
pub mod step;

pub mod assemble;
pub mod capacity;
pub mod checkpoint;
pub mod device;
pub mod plan;
pub mod plot;
pub mod report;
pub mod run;
pub mod telemetry;
mod training_loop;

mod error;

pub use config::RunConfig;
pub use device::DeviceChoice;
pub use error::TrainError;
pub use run::{RunOptions, RunSummary, run};
