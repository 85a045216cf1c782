//! The training step against the golden trajectory, and the capacity planner.

mod capacity;
mod golden;
