//! How the load of experts is balanced from step to step.

use std::fmt::Debug;

use crate::moe::router::Routing;

/// Turns what a router did in one step into the bias it uses in the next.
///
/// The trainer calls [`observe`](Self::observe) for each layer and micro-batch, merges with
/// [`merge`](Self::merge), and takes [`pending`](Self::pending) once a step. The pending values
/// are state: they are saved, and become the bias by [`bias`](Self::bias) at the start of the next
/// step, before evaluation and before export. Nothing is kept inside.
pub trait Balancing: Send + Sync {
    /// What one layer contributes.
    type Stats: Clone + Debug + Send;

    /// Statistics of the valid tokens of one layer in one micro-batch.
    fn observe(&self, routing: &Routing, token_valid: &[bool]) -> Self::Stats;

    /// Statistics of two disjoint sets of tokens together. The order must not matter.
    fn merge(&self, left: Self::Stats, right: Self::Stats) -> Self::Stats;

    /// The pending values `[e]` of one layer from the whole step's statistics and from the layer's
    /// pending values of the step before, which are empty at first.
    fn pending(&self, previous: &[f32], stats: &Self::Stats) -> Vec<f32>;

    /// The bias `[e]` that pending values stand for.
    fn bias(&self, pending: &[f32]) -> Vec<f32>;
}
