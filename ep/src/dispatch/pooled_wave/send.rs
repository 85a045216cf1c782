//! Which assignment takes which place of which pool.

use fulmar_kernels::pack::Header;

use super::super::NONE;
use super::super::choices::Choices;
use super::super::frame::Frame;

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
    /// The row of each assignment `[t k]` in the frames of all waves, one after the other.
    place_of: Vec<i32>,
    /// Of each wave; local expert + 1 of each slot, 0 where empty.
    pub(super) headers: Vec<Header>,
    /// Assignments that found no place.
    pub(super) sender_dropped: u64,
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
        let mut place_of = vec![NONE; num_assignments];
        let mut ids = vec![vec![0; parts * frame.slots()]; num_waves];
        let mut next = vec![(0, 0); parts];
        let mut sender_dropped = 0;
        for &(assignment, expert) in &choices.assignments {
            let part = expert / limits.local_experts;
            let (wave, slot) = next[part];
            next[part] = if wave + 1 == num_waves { (0, slot + 1) } else { (wave + 1, slot) };
            if slot < limits.pool {
                place_of[assignment] = (wave * frame.rows() + frame.row(part, slot)) as i32;
                ids[wave][part * frame.slots() + slot] = (expert % limits.local_experts) as u32 + 1;
            } else {
                sender_dropped += 1;
            }
        }
        let headers = ids.iter().map(|ids| frame.header(ids)).collect();
        Self { place_of, headers, sender_dropped }
    }

    /// Empty frames that say that this shard cannot go on.
    pub(super) fn refusal(num_assignments: usize, num_waves: usize, frame: &Frame) -> Self {
        let headers = (0..num_waves).map(|_| frame.refusal()).collect();
        Self { place_of: vec![NONE; num_assignments], headers, sender_dropped: 0 }
    }

    /// The row of each assignment in one wave's frame, [`NONE`] where it is not in this wave.
    pub(super) fn row_of(&self, wave: usize, frame: &Frame) -> Vec<i32> {
        let (first, rows) = ((wave * frame.rows()) as i32, frame.rows() as i32);
        let of_wave =
            |place: &i32| if (first..first + rows).contains(place) { place - first } else { NONE };
        self.place_of.iter().map(of_wave).collect()
    }

    /// The row in which each assignment comes back, in the frames of all waves, [`NONE`] where it
    /// was not sent or not kept by the receiver; `verdicts` `[parts, slots]` of each wave are 1
    /// where a row was kept.
    pub(super) fn returned_rows(&self, verdicts: &[Vec<u32>], frame: &Frame) -> Vec<i32> {
        let mut is_kept = vec![false; verdicts.len() * frame.rows()];
        for (is_kept, verdicts) in is_kept.chunks_mut(frame.rows()).zip(verdicts) {
            for (part, verdicts) in verdicts.chunks(frame.slots()).enumerate() {
                let is_kept = &mut is_kept[frame.row(part, 0)..][..frame.slots()];
                is_kept.iter_mut().zip(verdicts).for_each(|(kept, verdict)| *kept = *verdict == 1);
            }
        }
        let returned = |&place: &i32| {
            let is_kept = usize::try_from(place).is_ok_and(|place| is_kept[place]);
            if is_kept { place } else { NONE }
        };
        self.place_of.iter().map(returned).collect()
    }
}
