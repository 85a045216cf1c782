//! The exchange that failed at scale, kept for comparison: a cell for each source and expert.

mod cells;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::pack::{Header, pack_rows};
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::frame::Frame;
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher, experts_of};
use crate::capacity::FixedCellCapacity;
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload, Route, exchange};
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
    /// From assignments to rows of the returning frame.
    returned: RowMap,
    /// From rows of the arrived frame, without headers, to experts' rows.
    arrived: RowMap,
    route: Route,
    report: DispatchReport,
}

impl FixedCells {
    /// The exchange of `num_experts` experts among the shards of `group`, with the factor r.
    pub fn new(num_experts: usize, group: &Group, receiver: f64, payload: Payload) -> Self {
        Self { num_experts, group: group.clone(), receiver, payload }
    }

    fn route(&self, frame: &Frame, wire: Arc<WireCounter>) -> Route {
        Route {
            group: self.group.clone(),
            label: Label::DISPATCH,
            payload: self.payload,
            send_rows: frame.rows_by_part(),
            recv_rows: frame.rows_by_part(),
            header_rows: frame.header_rows(),
            wire,
        }
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
        let packed = pack_rows(tokens, &sent, &header);
        let rows = exchange(packed, &self.route(&frame, wire.clone()));
        let ids = frame.read(&rows, local_experts);
        choices?;
        let (row_of, group_sizes) = arrival_rows(&ids?, &frame, local_experts);
        let num_rows = group_sizes.iter().sum();
        let compact = RowMap::from_rows(behind_headers(&row_of, &frame), 1, num_rows, &device);
        let rows = dispatch_rows(rows, &compact);
        let wave = ExpertRows { rows, groups: Groups::from_counts(&group_sizes) };

        let bare = frame.bare();
        let handle = FixedCellsHandle {
            returned: RowMap::from_rows(cells.rows(&bare), k, bare.rows(), &device),
            arrived: RowMap::from_rows(row_of, 1, num_rows, &device),
            report: cells.report(demand, k, wire.clone()),
            route: self.route(&bare, wire).reversed(Label::COMBINE),
        };
        Ok(Dispatched { waves: vec![wave], handle })
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: FixedCellsHandle,
    ) -> Result<Combined, EpError> {
        let [output]: [Tensor<2>; 1] =
            outputs.try_into().expect("a dispatch through cells has one wave, so one output");
        let packed = dispatch_rows(output, &handle.arrived.transposed());
        let returned = exchange(packed, &handle.route);
        let tokens = combine_rows(returned, weights, &handle.returned);
        handle.report.counts.check()?;
        Ok(Combined { tokens, report: handle.report })
    }
}
