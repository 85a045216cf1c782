//! The training step against the golden trajectory, the capacity planner, and the binary as a
//! process.

mod capacity;
mod checkpoint;
mod data;
mod data_cleaning;
mod data_sources;
mod disk_full;
mod doctor;
mod exit;
mod generate;
mod golden;
mod interchange;
mod ladder;
mod memory_plan;
mod pins;
mod process;
mod rehearsal;
mod stop;
mod stuck;
mod suites;
