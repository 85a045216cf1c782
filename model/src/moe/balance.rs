//! How the load of experts is balanced from step to step.

use std::fmt::Debug;

use fulmar_ep::transport::{Group, TransportError};

use crate::moe::observation::Observation;

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
    fn observe(&self, observation: &Observation<'_>) -> Self::Stats;

    /// Statistics of two disjoint sets of tokens together. The order must not matter.
    fn merge(&self, left: Self::Stats, right: Self::Stats) -> Self::Stats;

    /// The pending values `[e]` of one layer from the whole step's statistics and from the layer's
    /// pending values of the step before, which are empty at first.
    ///
    /// The tokens of the step lie spread over `ranks`, a rank possibly without any: `stats` is this
    /// member's part. Every member calls it for the same layers in the same order, and every
    /// member gets the same values.
    ///
    /// # Errors
    /// If a peer fails to answer.
    fn pending(
        &self,
        previous: &[f32],
        stats: &Self::Stats,
        ranks: &Group,
    ) -> Result<Vec<f32>, TransportError>;

    /// The bias `[e]` that pending values stand for.
    fn bias(&self, pending: &[f32]) -> Vec<f32>;
}
