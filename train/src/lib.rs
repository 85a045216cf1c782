#![doc = include_str!("../README.md")]

pub mod cli;
pub mod config;
pub mod context;
pub mod parallel;
pub mod recipe;

mod accumulate;
pub mod layer_report;
pub mod optim;
pub mod state;
pub mod step;

pub mod alarms;
pub mod assemble;
pub mod background;
pub mod capacity;
pub mod checkpoint;
mod compare_weights;
pub mod device;
pub mod doctor;
pub mod evaluate;
pub mod exit;
pub mod experiment;
pub mod explain;
pub mod forecast;
pub mod generate;
pub mod guard;
pub mod history;
pub mod interchange;
mod json_lines;
pub mod ladder;
pub mod launch;
pub mod memory_plan;
pub mod operations;
pub mod past_run;
pub mod plan;
pub mod plot;
pub mod prove;
pub mod report;
pub mod report_page;
pub mod run;
mod run_lock;
pub mod samples;
pub mod stop_signal;
pub mod storage;
pub mod telemetry;
mod training_loop;
pub mod watchdog;

mod error;

pub use compare_weights::compare_weights;
pub use config::RunConfig;
pub use device::DeviceChoice;
pub use error::TrainError;
pub use parallel::ParallelConfig;
pub use run::{RunOptions, RunSummary, run, run_over};
