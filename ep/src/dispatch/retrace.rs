//! The way of a pass, to be taken a second time without a decision.

use std::sync::OnceLock;

use burn::tensor::Tensor;
use fulmar_kernels::pack::{Header, pack_rows};
use fulmar_kernels::permute::RowMap;
use fulmar_kernels::with_backward::with_backward;

use super::ExpertRows;
use crate::exchange::{Route, all_gather, exchange, reduce_scatter};

/// What a pass keeps so that its way can be taken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What was decided; rows travel again.
    Decisions,
    /// Also the rows that exchanges delivered; no exchange is made again.
    Rows,
}

/// The way of one pass through a dispatcher, both halves of it: which assignment went where, what
/// was dropped, how many rows each peer sent.
///
/// A backward pass that computes a block a second time takes it with the same rows. Nothing is
/// decided or counted anew, but for the bytes that travel again. The results have the bits of the
/// first time, in values and gradients.
///
/// What is not kept is exchanged again, so the rule of [`TokenDispatcher`](super::TokenDispatcher)
/// holds: every rank takes the way, in the same order.
pub trait Retrace: Send + Sync {
    /// The rows of this shard's experts, one entry a wave, from `tokens` [t, c].
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows>;

    /// The sums [t, c] of what came back, from the experts' `outputs` and `weights` [t, k].
    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2>;
}

/// One exchange of a way.
#[derive(Debug)]
pub(super) struct Crossing {
    over: Moves,
    /// What the backward of `over` does.
    back: Moves,
    route: Route,
    keep: Keep,
    delivered: OnceLock<Tensor<2>>,
}

type Moves = fn(Tensor<2>, &Route) -> Tensor<2>;

impl Crossing {
    pub(super) fn exchange(route: Route, keep: Keep) -> Self {
        Self::new(exchange, exchange, route, keep)
    }

    pub(super) fn gather(route: Route, keep: Keep) -> Self {
        Self::new(all_gather, reduce_scatter, route, keep)
    }

    pub(super) fn scatter(route: Route, keep: Keep) -> Self {
        Self::new(reduce_scatter, all_gather, route, keep)
    }

    fn new(over: Moves, back: Moves, route: Route, keep: Keep) -> Self {
        Self { over, back, route, keep, delivered: OnceLock::new() }
    }

    /// What peers have for this shard; `rows` travel, unless what they brought was kept.
    pub(super) fn cross(&self, rows: Tensor<2>) -> Tensor<2> {
        if let Some(delivered) = self.delivered.get() {
            let (back, route) = (self.back, self.route.backward());
            return with_backward(rows, delivered.clone(), move |grad| Some(back(grad, &route)));
        }
        let arrived = (self.over)(rows, &self.route);
        if self.keep == Keep::Rows {
            self.delivered.get_or_init(|| arrived.clone().inner());
        }
        arrived
    }
}

/// Rows out of this shard in a frame, whose header travels in front of them.
#[derive(Debug)]
pub(super) struct Sending {
    /// From assignments to rows of the frame.
    pub(super) sent: RowMap,
    pub(super) header: Header,
    pub(super) over: Crossing,
}

impl Sending {
    pub(super) fn send(&self, tokens: Tensor<2>) -> Tensor<2> {
        self.over.cross(pack_rows(tokens, &self.sent, &self.header))
    }
}

/// The outputs of a way with one wave.
pub(super) fn only(outputs: Vec<Tensor<2>>) -> Tensor<2> {
    let found = outputs.len();
    let [output]: [Tensor<2>; 1] =
        outputs.try_into().unwrap_or_else(|_| panic!("combine: {found} outputs, needed 1"));
    output
}
