//! Each exchange rule of SPEC section 3, slowly and obviously, over the whole world at once.
//!
//! Integers decide where an assignment goes, [`layer`] what follows for values and gradients.
//! Nothing here is shared with the dispatchers except the arithmetic of capacities.

mod fixed_cells;
pub(crate) mod layer;
mod local;
mod outcome;
mod pooled_wave;
mod problem;
mod ragged;
mod ring;

pub(crate) use outcome::{Fate, Outcome, Row};
pub(crate) use problem::Problem;

/// An exchange with its settings; `sender` and `receiver` are capacity factors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    Local,
    PooledWave { waves: usize, sender: f64, receiver: f64 },
    Ragged { receiver: f64 },
    FixedCells { receiver: f64 },
    Ring { receiver: f64 },
}

impl Rule {
    /// Where this rule takes every assignment of the problem.
    pub(crate) fn outcome(self, problem: &Problem) -> Outcome {
        match self {
            Self::Local => local::outcome(problem),
            Self::PooledWave { waves, sender, receiver } => {
                pooled_wave::outcome(problem, waves, sender, receiver)
            }
            Self::Ragged { receiver } => ragged::outcome(problem, receiver),
            Self::FixedCells { receiver } => fixed_cells::outcome(problem, receiver),
            Self::Ring { receiver } => ring::outcome(problem, receiver),
        }
    }
}
