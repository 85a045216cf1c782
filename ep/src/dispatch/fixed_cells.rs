//! The exchange that failed at scale, kept for comparison: a cell for each source and expert.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::pack::{Header, pack_rows};
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::frame::Frame;
use super::maps::{NONE, row_map, transposed};
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher, experts_of};
use crate::capacity::FixedCellCapacity;
use crate::counts::DispatchCounts;
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload, Route, exchange};
use crate::report::{DispatchReport, WireCounter, tokens_by_lost};
use crate::transport::Group;

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

/// A sender's cells.
struct Cells {
    /// The slot of each assignment in the frame `[t k]`.
    place_of: Vec<Option<(usize, usize)>>,
    /// Local expert + 1 of each slot.
    ids: Vec<u32>,
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

    /// Fills each cell in flat order up to `limit`.
    fn cells(
        &self,
        choices: &Choices,
        num_assignments: usize,
        frame: &Frame,
        limit: usize,
    ) -> Cells {
        let local_experts = self.num_experts / self.group.size();
        let cell_rows = frame.slots() / local_experts;
        let mut place_of = vec![None; num_assignments];
        let mut ids = vec![0; self.group.size() * frame.slots()];
        let mut filled = vec![0; self.num_experts];
        for &(assignment, expert) in &choices.assignments {
            if filled[expert] < limit {
                let (part, local) = (expert / local_experts, expert % local_experts);
                let slot = local * cell_rows + filled[expert];
                place_of[assignment] = Some((part, slot));
                ids[part * frame.slots() + slot] = local as u32 + 1;
                filled[expert] += 1;
            }
        }
        Cells { place_of, ids }
    }
}

impl Cells {
    fn rows(&self, frame: &Frame) -> Vec<i32> {
        let row = |place: &Option<(usize, usize)>| {
            place.map_or(NONE, |(part, slot)| frame.row(part, slot) as i32)
        };
        self.place_of.iter().map(row).collect()
    }

    fn report(&self, demand: &Demand, k: usize, wire: Arc<WireCounter>) -> DispatchReport {
        let assignments = self.place_of.len() as u64;
        let valid = demand.valid_here() * k as u64;
        let kept = self.place_of.iter().flatten().count() as u64;
        let counts = DispatchCounts {
            assignments,
            padding: assignments - valid,
            valid,
            kept,
            sender_dropped: valid - kept,
            receiver_dropped: 0,
        };
        let lost = |assignment: usize| self.place_of[assignment].is_none();
        let tokens_by_lost = tokens_by_lost(demand.token_valid(), k, lost);
        DispatchReport { counts, tokens_by_lost, wire }
    }
}

/// The expert row of each slot of a frame without headers, and the rows of each expert: cells are
/// laid out by expert, within one by source, without their empty rows.
fn arrival_rows(ids: &[u32], frame: &Frame, local_experts: usize) -> (Vec<i32>, Vec<usize>) {
    let cell_rows = frame.slots() / local_experts;
    let (mut row_of, mut group_sizes, mut next) = (vec![NONE; ids.len()], Vec::new(), 0);
    for expert in 0..local_experts {
        let first = next;
        for part in 0..ids.len() / frame.slots() {
            for slot in expert * cell_rows..(expert + 1) * cell_rows {
                if ids[part * frame.slots() + slot] != 0 {
                    row_of[frame.bare().row(part, slot)] = next;
                    next += 1;
                }
            }
        }
        group_sizes.push((next - first) as usize);
    }
    (row_of, group_sizes)
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
                let cells = self.cells(choices, num_tokens * k, &frame, limit);
                let header = frame.header(&cells.ids);
                (cells, header)
            }
            Err(_) => {
                let cells = Cells { place_of: vec![None; num_tokens * k], ids: Vec::new() };
                (cells, frame.refusal())
            }
        };
        let wire = Arc::new(WireCounter::default());
        let sent = row_map(cells.rows(&frame), k, frame.rows(), &device);
        let packed = pack_rows(tokens, &sent, &header);
        let rows = exchange(packed, &self.route(&frame, wire.clone()));
        let ids = frame.read(&rows, local_experts);
        choices?;
        let (row_of, group_sizes) = arrival_rows(&ids?, &frame, local_experts);
        let num_rows = group_sizes.iter().sum();
        let compact = row_map(behind_headers(&row_of, &frame), 1, num_rows, &device);
        let rows = dispatch_rows(rows, &compact);
        let wave = ExpertRows { rows, groups: Groups::from_counts(&group_sizes) };

        let bare = frame.bare();
        let handle = FixedCellsHandle {
            returned: row_map(cells.rows(&bare), k, bare.rows(), &device),
            arrived: row_map(row_of, 1, num_rows, &device),
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
        let packed = dispatch_rows(output, &transposed(&handle.arrived));
        let returned = exchange(packed, &handle.route);
        let tokens = combine_rows(returned, weights, &handle.returned);
        handle.report.counts.check()?;
        Ok(Combined { tokens, report: handle.report })
    }
}

/// The rows of slots as rows of a frame with headers, which go nowhere.
fn behind_headers(row_of: &[i32], frame: &Frame) -> Vec<i32> {
    let mut rows = Vec::with_capacity(frame.rows());
    for of_part in row_of.chunks(frame.slots()) {
        rows.extend(std::iter::repeat_n(NONE, frame.header_rows()));
        rows.extend(of_part);
    }
    rows
}
