//! What a forward pass does for the memory of its backward pass.
//!
//! A training step needs weights, gradients, and the activations that the backward pass reads.
//! [`GradientSink`] keeps gradients to one copy; [`Recompute`] says which activations are kept and
//! which are computed a second time when the backward pass comes to them. Whatever is chosen,
//! losses, gradients and statistics have the same bits.

mod again;
mod module;
mod sink;
mod slot;

use serde::{Deserialize, Serialize};

pub use again::{Outputs, computed_again};
pub use sink::GradientSink;

use fulmar_ep::Keep;

/// Which activations of a block the backward pass finds, and which it computes a second time.
///
/// What the router chose and what became of each assignment is always kept: a second pass takes
/// the way of the first, and nothing is counted or observed twice but the bytes that travel again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// All are kept; the fastest and the largest.
    #[default]
    None,
    /// Of a block its input and its routing decision are kept; exchanges are made again.
    Block,
    /// As `block`, and the rows that exchanges delivered are kept too, so that none is made again.
    /// On one shard there are none, and it is `block`.
    SaveMoe,
}

impl Recompute {
    /// Every mode, from the largest to the smallest.
    pub const ALL: [Self; 3] = [Self::None, Self::SaveMoe, Self::Block];

    /// The name used in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Block => "block",
            Self::SaveMoe => "save_moe",
        }
    }

    /// What the first pass through a block keeps of its exchanges, if there is a second.
    pub fn keep(self) -> Option<Keep> {
        match self {
            Self::None => None,
            Self::Block => Some(Keep::Decisions),
            Self::SaveMoe => Some(Keep::Rows),
        }
    }
}

/// How a backward pass is prepared for.
#[derive(Debug, Clone, Copy)]
pub struct BackwardPlan<'a> {
    /// What is computed again.
    pub recompute: Recompute,
    /// Where the gradients of parameters go; `backward()` itself then returns none.
    pub gradients: &'a GradientSink,
}
