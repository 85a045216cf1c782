//! The contract between token order and expert order.

mod choices;
mod dispatcher;
pub mod fixed_cells;
mod frame;
pub mod local;
pub mod pooled_wave;
pub mod ragged;
mod retrace;
pub mod ring;
mod send_order;
mod size;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::permute::RowMap;

use crate::demand::Demand;
use crate::error::EpError;
use crate::report::DispatchReport;
use crate::transport::Group;

pub use dispatcher::{Dispatcher, DispatcherHandle};
pub use retrace::{Keep, Retrace};
pub use size::WaySize;

/// No row, no assignment.
const NONE: i32 = RowMap::NONE;

/// Carries token rows to the experts chosen for them, and weighted results back.
///
/// Axis letters: t tokens of this shard, k experts per token, c width of a row, r rows that
/// arrive at this shard's experts.
///
/// Both halves are differentiable in their rows, `combine` also in the weights, and both must be
/// called by every rank in every step, with zero rows too: a rank that skips a collective hangs
/// the others.
pub trait TokenDispatcher: Send + Sync {
    /// What [`dispatch`](Self::dispatch) remembers for [`combine`](Self::combine).
    type Handle: Send;

    /// Global ids of the experts whose rows arrive at this shard, in the order of their groups.
    fn local_experts(&self) -> Range<usize>;

    /// The shards among which rows travel.
    fn group(&self) -> &Group;

    /// What all shards want to route, agreed once a forward pass; `token_valid` `[t]` is false for
    /// padding.
    ///
    /// # Errors
    /// If a peer fails to answer.
    fn demand(&self, token_valid: &[bool]) -> Result<Demand, EpError> {
        Demand::agree(self.group(), token_valid)
    }

    /// Sends each valid token's row to its chosen experts.
    ///
    /// `tokens` [t, c]; `selected` [t, k] holds global expert ids, which are not read where a token
    /// is padding; `demand` is of the same tokens.
    ///
    /// # Errors
    /// If an id is not an expert's on this shard or another: every shard of the group gets an error
    /// then, and none is left waiting.
    ///
    /// # Panics
    /// Unwinds with a [`TransportError`](crate::transport::TransportError) if a peer is lost, as
    /// every tracked collective does, because a backward pass cannot return an error.
    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<Self::Handle>, EpError>;

    /// Brings the experts' outputs, one tensor a wave in the shape of its rows, back to their
    /// tokens: the sum over slots of `weights` [t, k] times the row that came back.
    ///
    /// # Errors
    /// If the counts do not add up.
    ///
    /// # Panics
    /// As [`dispatch`](Self::dispatch).
    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: Self::Handle,
    ) -> Result<Combined, EpError>;

    /// As [`dispatch`](Self::dispatch), of a pass whose way will be taken again. The dispatchers
    /// here can; one that does not say so cannot.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch), and [`EpError::NoRetrace`].
    ///
    /// # Panics
    /// As [`dispatch`](Self::dispatch).
    fn dispatch_keeping(
        &self,
        _tokens: Tensor<2>,
        _selected: Tensor<2, Int>,
        _demand: &Demand,
        _keep: Keep,
    ) -> Result<Dispatched<Self::Handle>, EpError> {
        Err(EpError::NoRetrace)
    }

    /// As [`combine`](Self::combine), with the way that the rows of this pass took.
    ///
    /// # Errors
    /// As [`combine`](Self::combine), and [`EpError::NoRetrace`].
    ///
    /// # Panics
    /// As [`dispatch`](Self::dispatch).
    fn combine_keeping(
        &self,
        _outputs: Vec<Tensor<2>>,
        _weights: Tensor<2>,
        _handle: Self::Handle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        Err(EpError::NoRetrace)
    }
}

/// The rows of this shard's experts, and what to hand back with their outputs.
#[derive(Debug)]
pub struct Dispatched<H> {
    /// One entry a wave, in order; a dispatcher without waves has one.
    pub waves: Vec<ExpertRows>,
    /// To be given to [`TokenDispatcher::combine`].
    pub handle: H,
}

/// Rows sorted into one group a local expert; rows outside every group are empty.
#[derive(Debug, Clone)]
pub struct ExpertRows {
    /// [r, c].
    pub rows: Tensor<2>,
    /// Where each local expert's rows lie.
    pub groups: Groups,
}

/// What came back to the tokens of this shard.
#[derive(Debug, Clone)]
pub struct Combined {
    /// [t, c]; a token none of whose assignments was kept has a row of zeros.
    pub tokens: Tensor<2>,
    /// What happened to this shard's assignments, and what it cost.
    pub report: DispatchReport,
}

/// Global ids of the experts of this member of `group`.
pub(crate) fn experts_of(group: &Group, num_experts: usize) -> Range<usize> {
    let local_experts = num_experts / group.size();
    let first = group.rank() * local_experts;
    first..first + local_experts
}
