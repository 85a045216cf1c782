//! One task: the query heads that read one kv head, in one row of the batch.

use std::ops::Range;

use super::mask::Mask;
use super::rows::Placement;
use crate::attention::AttentionOptions;
use crate::matrix::{Factors, Matrix, multiply};
use crate::parallel::for_each_row;
use crate::simd::exp_in_place;

/// Columns of a block of scores.
pub(super) const KEY_BLOCK: usize = 128;
/// Rows of a block of scores, about: queries times the heads of a group.
const ROWS: usize = 96;

/// The dimensions of a call, and where its rows lie.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub(super) b: usize,
    pub(super) s: usize,
    pub(super) h: usize,
    pub(super) j: usize,
    pub(super) a: usize,
    pub(super) own: usize,
}

impl Geometry {
    /// The query heads that read own kv head `own`; they are neighbours.
    pub(super) fn group(&self, own: usize, options: &AttentionOptions) -> Range<usize> {
        let reads = |head: &usize| options.own_head(*head, self.h, self.j) == own;
        let first = (0..self.h).find(reads).unwrap_or(0);
        first..first + (0..self.h).filter(reads).count()
    }
}

/// All of a call that its tasks share.
pub(super) struct Call<'a> {
    pub(super) geometry: Geometry,
    pub(super) options: &'a AttentionOptions,
    pub(super) placement: Placement,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) segments: &'a [i32],
}

impl Call<'_> {
    /// The query heads of every own kv head.
    pub(super) fn groups(&self) -> Vec<Range<usize>> {
        (0..self.geometry.own).map(|own| self.geometry.group(own, self.options)).collect()
    }
}

/// The heads of one task. Rows of a query block are query-major: all heads of a query, then the
/// next query, so that the whole group shares each product with the keys.
pub(super) struct Heads<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) row: usize,
    pub(super) own: usize,
    pub(super) group: Range<usize>,
    pub(super) mask: Mask<'a>,
    /// The normalised and rotated keys, [s, a].
    pub(super) keys: Vec<f32>,
}

impl<'a> Heads<'a> {
    /// Task `index` of b times own.
    pub(super) fn new(call: &'a Call<'a>, index: usize) -> Self {
        let Geometry { s, a, own, .. } = call.geometry;
        let (row, own) = (index / own, index % own);
        let group = call.geometry.group(own, call.options);
        let mask = Mask::new(&call.segments[row * s..][..s], call.options.window);
        let mut heads = Self { call, row, own, group, mask, keys: Vec::new() };
        let mut keys = vec![0.0; s * a];
        for_each_row(&mut keys, a, |t, key| call.placement.place(t, heads.key(t), key));
        heads.keys = keys;
        heads
    }

    /// Queries of a block: a function of the group alone, so results depend on nothing else.
    pub(super) fn query_block(&self) -> usize {
        (ROWS / self.group.len()).clamp(8, 64)
    }

    /// Where row `i` of the task lies in a [b, s, h, a] tensor.
    pub(super) fn query_row(&self, i: usize) -> Range<usize> {
        let Geometry { a, .. } = self.call.geometry;
        let start = self.query_index(i) * a;
        start..start + a
    }

    /// Where row `i` of the task lies in a [b, s, h] tensor.
    pub(super) fn query_index(&self, i: usize) -> usize {
        let Geometry { s, h, .. } = self.call.geometry;
        let (t, head) = (i / self.group.len(), self.group.start + i % self.group.len());
        (self.row * s + t) * h + head
    }

    pub(super) fn key(&self, t: usize) -> &'a [f32] {
        &self.call.k[self.key_start(t)..][..self.call.geometry.a]
    }

    pub(super) fn value(&self, t: usize) -> &'a [f32] {
        &self.call.v[self.key_start(t)..][..self.call.geometry.a]
    }

    fn key_start(&self, t: usize) -> usize {
        let Geometry { s, j, a, .. } = self.call.geometry;
        ((self.row * s + t) * j + self.own) * a
    }

    /// The normalised and rotated queries of a block, [queries * group, a].
    pub(super) fn placed_queries(&self, queries: Range<usize>) -> Vec<f32> {
        let (a, group) = (self.call.geometry.a, self.group.len());
        let mut placed = vec![0.0; queries.len() * group * a];
        for (i, out) in (queries.start * group..).zip(placed.chunks_exact_mut(a)) {
            self.call.placement.place(i / group, &self.call.q[self.query_row(i)], out);
        }
        placed
    }

    pub(super) fn placed_keys(&self, keys: Range<usize>) -> Matrix<'_> {
        let a = self.call.geometry.a;
        Matrix::new(&self.keys[keys.start * a..keys.end * a], keys.len(), a)
    }

    pub(super) fn values(&self, keys: Range<usize>) -> Matrix<'a> {
        let Geometry { j, a, .. } = self.call.geometry;
        Matrix::strided(&self.call.v[self.key_start(keys.start)..], keys.len(), a, j * a)
    }

    /// The blocks of keys that a block of queries reads.
    pub(super) fn key_blocks(
        &self,
        queries: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let keys = self.mask.keys(queries);
        let end = keys.end;
        keys.step_by(KEY_BLOCK).map(move |start| start..(start + KEY_BLOCK).min(end))
    }

    /// Room for the weights of a block of queries over a block of keys.
    pub(super) fn scores(&self, queries: Range<usize>) -> Vec<f32> {
        vec![0.0; queries.len() * self.group.len() * KEY_BLOCK]
    }

    /// What turns `q k` into a score.
    pub(super) fn scale(&self) -> f32 {
        (self.call.options.qk_mult / (self.call.geometry.a as f64).sqrt()) as f32
    }

    /// `exp(score)` of every row of the block for every key, 0 where the key is forbidden. The
    /// scores are bounded (see [`AttentionOptions::qk_mult`]), so no maximum is subtracted.
    pub(super) fn weigh(
        &self,
        weights: &mut [f32],
        placed_queries: Matrix<'_>,
        queries: Range<usize>,
        keys: Range<usize>,
    ) {
        let placed_keys = self.placed_keys(keys.clone()).transposed();
        multiply(weights, Factors::REPLACE.scaled(self.scale()), placed_queries, placed_keys);
        exp_in_place(weights);
        self.mask.clear_forbidden(weights, self.group.len(), queries, keys);
    }
}
