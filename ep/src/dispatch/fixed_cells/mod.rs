//! The exchange that failed at scale, kept for comparison: a cell for each source and expert.

mod cells;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::pack::Header;
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::frame::Frame;
use super::retrace::{Crossing, Keep, Retrace, Sending, only};
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher, experts_of};
use crate::capacity::FixedCellCapacity;
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload};
use crate::report::{DispatchReport, WireCounter};
use crate::transport::Group;
use cells::{Cells, arrival_rows, behind_headers};

/// Fixed-cell exchange (SPEC section 3).
///
/// A source may send each expert a fixed number of rows; what exceeds it is dropped by the sender,
/// even while other sources leave their cells of the same expert empty.
#[derive(Debug, Clone)]
pub struct FixedCells {
    num_experts: usize,
    group: Group,
    /// r.
    receiver: f64,
    payload: Payload,
}

/// What [`FixedCells`] remembers between dispatch and combine.
#[derive(Debug)]
pub struct FixedCellsHandle {
    way: Arc<FixedCellsWay>,
    report: DispatchReport,
}

/// Cells to their experts and back.
#[derive(Debug)]
struct FixedCellsWay {
    sending: Sending,
    /// From rows of the arrived frame, headers included, to experts' rows.
    compact: RowMap,
    groups: Groups,
    /// From rows of the arrived frame, without headers, to experts' rows.
    arrived: RowMap,
    back: Crossing,
    /// From assignments to rows of the returning frame.
    returned: RowMap,
}

impl FixedCellsWay {
    fn take(&self, arrived: Tensor<2>) -> Vec<ExpertRows> {
        let rows = dispatch_rows(arrived, &self.compact);
        vec![ExpertRows { rows, groups: self.groups.clone() }]
    }
}

impl Retrace for FixedCellsWay {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        self.take(self.sending.send(tokens))
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        let packed = dispatch_rows(only(outputs), &self.arrived.transposed());
        combine_rows(self.back.cross(packed), weights, &self.returned)
    }
}

impl FixedCells {
    /// The exchange of `num_experts` experts among the shards of `group`, with the factor r.
    pub fn new(num_experts: usize, group: &Group, receiver: f64, payload: Payload) -> Self {
        Self { num_experts, group: group.clone(), receiver, payload }
    }
}

impl TokenDispatcher for FixedCells {
    type Handle = FixedCellsHandle;

    fn local_experts(&self) -> Range<usize> {
        experts_of(&self.group, self.num_experts)
    }

    fn group(&self) -> &Group {
        &self.group
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<FixedCellsHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: FixedCellsHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<FixedCellsHandle>, EpError> {
        let ([num_tokens, width], [_, k]) = (tokens.dims(), selected.dims());
        let (device, shards) = (selected.device(), self.group.size());
        let local_experts = self.num_experts / shards;
        let n = demand.most_tokens() * k as u64;
        let capacity = FixedCellCapacity::new(n, self.num_experts as u64, self.receiver);
        let limit = capacity.cell_limit(demand.valid_here() * k as u64, self.receiver) as usize;
        let slots = local_experts as u64 * capacity.cell_rows;
        let frame = Frame::new(shards, slots, width)?;

        let choices = Choices::read(selected, demand, self.num_experts);
        let (cells, header): (Cells, Header) = match &choices {
            Ok(choices) => {
                let cells = Cells::fill(choices, num_tokens * k, local_experts, &frame, limit);
                let header = frame.header(&cells.ids);
                (cells, header)
            }
            Err(_) => (Cells::none(num_tokens * k), frame.refusal()),
        };
        let wire = Arc::new(WireCounter::default());
        let sent = RowMap::from_rows(cells.rows(&frame), k, frame.rows(), &device);
        let route = |frame: &Frame| frame.route(&self.group, self.payload, Label::DISPATCH, &wire);
        let over = Crossing::exchange(route(&frame), keep);
        let sending = Sending { sent, header, over };
        let rows = sending.send(tokens);
        let ids = frame.read(&rows, local_experts);
        choices?;
        let (row_of, group_sizes) = arrival_rows(&ids?, &frame, local_experts);
        let num_rows = group_sizes.iter().sum();
        let (bare, report) = (frame.bare(), cells.report(demand, k, wire.clone()));
        let way = Arc::new(FixedCellsWay {
            sending,
            compact: RowMap::from_rows(behind_headers(&row_of, &frame), 1, num_rows, &device),
            groups: Groups::from_counts(&group_sizes),
            arrived: RowMap::from_rows(row_of, 1, num_rows, &device),
            back: Crossing::exchange(route(&bare).reversed(Label::COMBINE), keep),
            returned: RowMap::from_rows(cells.rows(&bare), k, bare.rows(), &device),
        });
        Ok(Dispatched { waves: way.take(rows), handle: FixedCellsHandle { way, report } })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: FixedCellsHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let FixedCellsHandle { way, report } = handle;
        let tokens = way.combine(outputs, weights);
        report.counts.check()?;
        Ok((Combined { tokens, report }, way))
    }
}
