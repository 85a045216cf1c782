//! Which keys a query may read.

use std::ops::Range;

/// The rule of one row of the batch: same segment, `key <= query`, `key > query - window`.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a> {
    segments: &'a [i32],
    window: usize,
}

impl<'a> Mask<'a> {
    pub(super) fn new(segments: &'a [i32], window: Option<usize>) -> Self {
        Self { segments, window: window.unwrap_or(segments.len()) }
    }

    /// A range that holds every key which some query of the block may read. Leading keys of other
    /// documents are left out: where ids do not come back, that is all of them.
    pub(super) fn keys(&self, queries: Range<usize>) -> Range<usize> {
        let ids = &self.segments[queries.clone()];
        let (least, most) =
            ids.iter().fold((i32::MAX, i32::MIN), |(lo, hi), &id| (lo.min(id), hi.max(id)));
        let mut start = self.first_key(queries.start);
        while !(least..=most).contains(&self.segments[start]) {
            start += 1;
        }
        start..queries.end
    }

    /// Sets to 0 the weights of keys that the queries may not read; `group` rows a query, a
    /// column a key.
    pub(super) fn clear_forbidden(
        &self,
        weights: &mut [f32],
        group: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) {
        let width = keys.len();
        if self.all_allowed(&queries, &keys) {
            return;
        }
        let key_segments = &self.segments[keys.clone()];
        for (t, rows) in queries.zip(weights.chunks_exact_mut(group * width)) {
            let own = self.segments[t];
            let first = self.first_key(t).clamp(keys.start, keys.end) - keys.start;
            let end = (t + 1).clamp(keys.start, keys.end) - keys.start;
            let mixed = key_segments[first..end.max(first)].iter().any(|&id| id != own);
            for row in rows.chunks_exact_mut(width) {
                row[..first].fill(0.0);
                row[end..].fill(0.0);
                if mixed {
                    for (weight, &id) in row.iter_mut().zip(key_segments) {
                        *weight = if id == own { *weight } else { 0.0 };
                    }
                }
            }
        }
    }

    /// Whether every query may read every key.
    fn all_allowed(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        let own = self.segments[queries.start];
        keys.end <= queries.start + 1
            && self.first_key(queries.end - 1) <= keys.start
            && self.segments[queries.clone()].iter().all(|&id| id == own)
            && self.segments[keys.clone()].iter().all(|&id| id == own)
    }

    fn first_key(&self, query: usize) -> usize {
        (query + 1).saturating_sub(self.window)
    }
}
