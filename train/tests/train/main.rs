//! The training step against the golden trajectory, the capacity planner, and the binary as a
//! process.

mod capacity;
mod disk_full;
mod doctor;
mod exit;
mod golden;
mod memory_plan;
mod process;
mod stop;
mod stuck;
