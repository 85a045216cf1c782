//! The training step against the golden trajectory.

mod golden;
