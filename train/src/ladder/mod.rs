//! Small runs by one rule, from which a large one is forecast: which they are, and where they stand.
//!
//! A ladder is a file beside its recipes:
//!
//! ```toml
//! name = "mini"
//! out = "runs/ladders/mini"        # a rung lies in <out>/<name of its recipe>
//! tokens_per_active_param = 1.2    # the same on every rung; steps are the nearest whole number
//! asymptote = 2.0                  # nats that no compute gets below, chosen before the fit
//! target = "mini_d128"             # forecast from the rungs below it, before it is trained
//! rungs = ["../recipes/mini_d48.toml", "../recipes/mini_d64.toml", "../recipes/mini_d96.toml",
//!          "../recipes/mini_d128.toml"]
//! ```
//!
//! `climb` trains what is not done. Before the target's first step its forecast is fixed, and the run is
//! watched against it ([`crate::forecast`]).
//!
//! Every recipe is whole, and is checked against the rule: what a rung of another rule reaches says
//! nothing about this ladder.

mod climb;
mod file;
mod fixed;
mod plan;
mod status;

pub use climb::{Climb, climb};
pub use file::{Ladder, Rung};
pub use plan::LadderPlan;
pub use status::{LadderStatus, RungStatus, Standing};
