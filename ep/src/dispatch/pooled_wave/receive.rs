//! Which arrived row goes to which row of an expert.

use super::super::NONE;
use super::super::frame::Frame;

/// A receiver's plan for one wave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    /// The expert row of each arrived row, header rows included.
    pub(super) row_of: Vec<i32>,
    /// L q.
    pub(super) num_rows: usize,
    /// Rows taken by each local expert `[L]`.
    pub(super) taken: Vec<usize>,
    /// 1 where an arrived row is kept `[parts, slots]`.
    pub(super) verdicts: Vec<u32>,
}

impl Receipt {
    /// Rows are ranked per expert by slot, then source, so that no source is always last; each
    /// expert has `expert_rows` rows and takes at most `limit`. `ids` `[parts, slots]` hold local
    /// expert + 1, or 0.
    pub(super) fn new(
        ids: &[u32],
        frame: &Frame,
        local_experts: usize,
        expert_rows: usize,
        limit: usize,
    ) -> Self {
        let (slots, num_rows) = (frame.slots(), local_experts * expert_rows);
        let mut row_of = vec![NONE; frame.rows()];
        let mut verdicts = vec![0; ids.len()];
        let mut taken = vec![0; local_experts];
        for slot in 0..slots {
            for part in 0..ids.len() / slots {
                let Some(expert) = (ids[part * slots + slot] as usize).checked_sub(1) else {
                    continue;
                };
                if taken[expert] < limit {
                    row_of[frame.row(part, slot)] = (expert * expert_rows + taken[expert]) as i32;
                    verdicts[part * slots + slot] = 1;
                    taken[expert] += 1;
                }
            }
        }
        Self { row_of, num_rows, taken, verdicts }
    }
}
