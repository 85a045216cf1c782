//! Which assignment takes which row of which cell, and where the receiver puts it.

use std::sync::Arc;

use super::super::NONE;
use super::super::choices::Choices;
use super::super::frame::Frame;
use crate::demand::Demand;
use crate::report::{DispatchReport, WireCounter};

/// A sender's cells.
#[derive(Debug)]
pub(super) struct Cells {
    /// The slot of each assignment in the frame `[t k]`.
    place_of: Vec<Option<(usize, usize)>>,
    /// Local expert + 1 of each slot.
    pub(super) ids: Vec<u32>,
}

impl Cells {
    /// Fills each cell in flat order up to `limit`.
    pub(super) fn fill(
        choices: &Choices,
        num_assignments: usize,
        local_experts: usize,
        frame: &Frame,
        limit: usize,
    ) -> Self {
        let parts = frame.rows_by_part().len();
        let cell_rows = frame.slots() / local_experts;
        let mut place_of = vec![None; num_assignments];
        let mut ids = vec![0; parts * frame.slots()];
        let mut filled = vec![0; parts * local_experts];
        for &(assignment, expert) in &choices.assignments {
            if filled[expert] < limit {
                let (part, local) = (expert / local_experts, expert % local_experts);
                let slot = local * cell_rows + filled[expert];
                place_of[assignment] = Some((part, slot));
                ids[part * frame.slots() + slot] = local as u32 + 1;
                filled[expert] += 1;
            }
        }
        Self { place_of, ids }
    }

    /// No rows at all.
    pub(super) fn none(num_assignments: usize) -> Self {
        Self { place_of: vec![None; num_assignments], ids: Vec::new() }
    }

    /// The row of each assignment in a frame.
    pub(super) fn rows(&self, frame: &Frame) -> Vec<i32> {
        let row = |place: &Option<(usize, usize)>| {
            place.map_or(NONE, |(part, slot)| frame.row(part, slot) as i32)
        };
        self.place_of.iter().map(row).collect()
    }

    /// What became of the assignments; every drop is the sender's.
    pub(super) fn report(
        &self,
        demand: &Demand,
        k: usize,
        wire: Arc<WireCounter>,
    ) -> DispatchReport {
        let placed = self.place_of.iter().flatten().count() as u64;
        let sender_dropped = demand.valid_here() * k as u64 - placed;
        let is_kept = |assignment: usize| self.place_of[assignment].is_some();
        DispatchReport::new(demand.token_valid(), k, sender_dropped, is_kept, wire)
    }
}

/// The expert row of each slot of a frame without headers, and the rows of each expert: cells are
/// laid out by expert, within one by source, without their empty rows.
pub(super) fn arrival_rows(
    ids: &[u32],
    frame: &Frame,
    local_experts: usize,
) -> (Vec<i32>, Vec<usize>) {
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

/// The rows of slots as rows of a frame with headers, which go nowhere.
pub(super) fn behind_headers(row_of: &[i32], frame: &Frame) -> Vec<i32> {
    let mut rows = Vec::with_capacity(frame.rows());
    for of_part in row_of.chunks(frame.slots()) {
        rows.extend(std::iter::repeat_n(NONE, frame.header_rows()));
        rows.extend(of_part);
    }
    rows
}
