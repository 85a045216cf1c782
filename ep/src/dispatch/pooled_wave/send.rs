//! Which assignment takes which place of which pool.

use fulmar_kernels::pack::Header;

use super::super::choices::Choices;
use super::super::frame::Frame;
use super::super::maps::NONE;

/// What a sender must know beside its choices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// L.
    pub(super) local_experts: usize,
    /// Rows of a pool that may be filled.
    pub(super) pool: usize,
}

/// The places of one shard's assignments.
#[derive(Debug)]
pub(super) struct SendPlan {
    pub(super) waves: Vec<SentWave>,
    /// Assignments that found no place.
    pub(super) sender_dropped: u64,
}

/// The places in one wave's frame.
#[derive(Debug)]
pub(super) struct SentWave {
    /// The row of each assignment `[t k]`.
    pub(super) row_of: Vec<i32>,
    /// Local expert + 1 of each slot, 0 where empty.
    pub(super) header: Header,
}

impl SendPlan {
    /// Assignment a of those with one destination, counted from 0 in flat order, goes to wave
    /// a mod W, place a div W, if that place is within the limit.
    pub(super) fn new(
        choices: &Choices,
        num_assignments: usize,
        num_waves: usize,
        limits: Limits,
        frame: &Frame,
    ) -> Self {
        let parts = frame.rows_by_part().len();
        let mut row_of = vec![vec![NONE; num_assignments]; num_waves];
        let mut ids = vec![vec![0; parts * frame.slots()]; num_waves];
        let mut next = vec![(0, 0); parts];
        let mut sender_dropped = 0;
        for &(assignment, expert) in &choices.assignments {
            let part = expert / limits.local_experts;
            let (wave, slot) = next[part];
            next[part] = if wave + 1 == num_waves { (0, slot + 1) } else { (wave + 1, slot) };
            if slot < limits.pool {
                row_of[wave][assignment] = frame.row(part, slot) as i32;
                ids[wave][part * frame.slots() + slot] = (expert % limits.local_experts) as u32 + 1;
            } else {
                sender_dropped += 1;
            }
        }
        let waves = row_of.into_iter().zip(ids);
        let waves = waves.map(|(row_of, ids)| SentWave { row_of, header: frame.header(&ids) });
        Self { waves: waves.collect(), sender_dropped }
    }

    /// Empty frames that say that this shard cannot go on.
    pub(super) fn refusal(num_assignments: usize, num_waves: usize, frame: &Frame) -> Self {
        let wave = || SentWave { row_of: vec![NONE; num_assignments], header: frame.refusal() };
        Self { waves: (0..num_waves).map(|_| wave()).collect(), sender_dropped: 0 }
    }
}

impl SentWave {
    /// The row in which each assignment comes back, [`NONE`] where it was not sent in this wave or
    /// not kept by the receiver; `verdicts` `[parts, slots]` are 1 where a row was kept.
    pub(super) fn returned_rows(&self, verdicts: &[u32], frame: &Frame) -> Vec<i32> {
        let part_rows = frame.header_rows() + frame.slots();
        let row = |&row: &i32| {
            if row == NONE {
                return NONE;
            }
            let (part, of_part) = (row as usize / part_rows, row as usize % part_rows);
            let kept = verdicts[part * frame.slots() + of_part - frame.header_rows()] == 1;
            if kept { row } else { NONE }
        };
        self.row_of.iter().map(row).collect()
    }
}
