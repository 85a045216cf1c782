//! The training step against the golden trajectory, and the binary as a process.

mod exit;
mod golden;
