//! Gradients of one task, tile by tile with the weights formed anew.
//!
//! A tile is a block of queries by a block of keys. Tiles of the same distance between the two
//! share neither, so that they run in parallel; distances follow one another, so that every sum
//! has one order, whatever the number of threads, and nothing is held twice.

use std::ops::Range;

use rayon::prelude::*;

use super::heads::{Heads, KEY_BLOCK};
use super::rows::exclude_backward;
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::{Loop, MulAdd, dot, vectorised};

/// What a task reads beside its inputs: slices of whole [b, s, h, ...] tensors.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    pub(super) y: &'a [f32],
    pub(super) inverse_sum: &'a [f32],
    pub(super) grad: &'a [f32],
}

/// The gradients of a task's q [s * group, a], k [s, a] and v [s, a].
pub(super) struct Gradients {
    pub(super) dq: Vec<f32>,
    pub(super) dk: Vec<f32>,
    pub(super) dv: Vec<f32>,
}

pub(super) fn attend_backward(heads: &Heads<'_>, saved: Saved<'_>) -> Gradients {
    let (s, a, group) = (heads.call.geometry.s, heads.call.geometry.a, heads.group.len());
    let (mut dq, mut dk, mut dv) = (vec![0.0; s * group * a], vec![0.0; s * a], vec![0.0; s * a]);
    let rows = Rows::new(heads, saved, &mut dv);
    let (of_queries, of_keys) = (KEY_BLOCK * group * a, KEY_BLOCK * a);
    for distance in 0..rows.distances() {
        let tiles = dq[distance * of_queries..]
            .par_chunks_mut(of_queries)
            .zip(dk.par_chunks_mut(of_keys).zip(dv.par_chunks_mut(of_keys)))
            .enumerate();
        tiles.for_each_init(
            || Scratch::new(heads),
            |scratch, (i, (dq, (dk, dv)))| {
                let tile = Tile { heads, rows: &rows, queries: i + distance, keys: i };
                tile.add_gradients(scratch, dq, dk, dv);
            },
        );
    }
    let placed_keys = heads.keys.par_chunks(of_keys);
    let placed = rows.placed.par_chunks(of_queries).zip(placed_keys);
    let gradients = dq.par_chunks_mut(of_queries).zip(dk.par_chunks_mut(of_keys));
    gradients.zip(placed).enumerate().for_each(|(i, ((dq, dk), (queries, keys)))| {
        let heads_of = dq.chunks_exact_mut(a).zip(queries.chunks_exact(a));
        for (row, (dq, placed)) in (i * KEY_BLOCK * group..).zip(heads_of) {
            let q = &heads.call.q[heads.query_row(row)];
            heads.call.placement.pull_back(row / group, q, placed, dq);
        }
        let keys = dk.chunks_exact_mut(a).zip(keys.chunks_exact(a));
        for (t, (dk, placed)) in (i * KEY_BLOCK..).zip(keys) {
            heads.call.placement.pull_back(t, heads.key(t), placed, dk);
        }
    });
    Gradients { dq, dk, dv }
}

/// What the tiles read of every row of the task.
struct Rows {
    /// The normalised and rotated queries, [s * group, a].
    placed: Vec<f32>,
    /// The gradient of `y = P v`, [s * group, a].
    dy: Vec<f32>,
    /// Its inner product with y, [s * group].
    delta: Vec<f32>,
    /// One over the sum of weights, [s * group].
    inverse_sum: Vec<f32>,
    /// The first key of each block of queries; no block is part of two tiles.
    first_keys: Vec<usize>,
    blocks_of_tile: usize,
}

impl Rows {
    /// The exclusive step's own gradient of v is added to `dv`.
    fn new(heads: &Heads<'_>, saved: Saved<'_>, dv: &mut [f32]) -> Self {
        let (s, a, group) = (heads.call.geometry.s, heads.call.geometry.a, heads.group.len());
        let eps = heads.call.options.exclusive_eps as f32;
        let [mut placed, mut dy] = [(); 2].map(|()| vec![0.0; s * group * a]);
        let [mut delta, mut inverse_sum] = [(); 2].map(|()| vec![0.0; s * group]);
        let of_rows = (delta.par_chunks_mut(KEY_BLOCK * group))
            .zip(inverse_sum.par_chunks_mut(KEY_BLOCK * group));
        let of_values = placed
            .par_chunks_mut(KEY_BLOCK * group * a)
            .zip(dy.par_chunks_mut(KEY_BLOCK * group * a))
            .zip(dv.par_chunks_mut(KEY_BLOCK * a));
        of_values.zip(of_rows).enumerate().for_each(|(i, (((placed, dy), dv), of_rows))| {
            let first = i * KEY_BLOCK;
            let values = placed.chunks_exact_mut(a).zip(dy.chunks_exact_mut(a));
            let of_rows = of_rows.0.iter_mut().zip(of_rows.1);
            for (row, ((placed, dy), (delta, inverse_sum))) in
                (first * group..).zip(values.zip(of_rows))
            {
                let (t, at) = (row / group, heads.query_row(row));
                heads.call.placement.place(t, &heads.call.q[at.clone()], placed);
                let (y, grad) = (&saved.y[at.clone()], &saved.grad[at]);
                let dv = &mut dv[(t - first) * a..][..a];
                exclude_backward([y, heads.value(t), grad], eps, dy, dv);
                *delta = dot(dy, y);
                *inverse_sum = saved.inverse_sum[heads.query_index(row)];
            }
        });
        let blocks = (0..s).step_by(KEY_BLOCK).flat_map(|first| blocks_of(heads, s, first));
        let first_keys = blocks.map(|queries| heads.mask.keys(queries).start).collect();
        let blocks_of_tile = blocks_of(heads, usize::MAX, 0).count();
        Self { placed, dy, delta, inverse_sum, first_keys, blocks_of_tile }
    }

    /// One more than the most tiles between a query and a key that it reads.
    fn distances(&self) -> usize {
        let tiles = self.first_keys.chunks(self.blocks_of_tile).enumerate();
        let farthest = tiles.map(|(tile, first_keys)| {
            first_keys.iter().map(|first| tile - first / KEY_BLOCK).max().unwrap_or(0)
        });
        farthest.max().map_or(0, |distance| distance + 1)
    }
}

/// The blocks of queries of the tile that begins at query `first`.
fn blocks_of(heads: &Heads<'_>, s: usize, first: usize) -> impl Iterator<Item = Range<usize>> {
    let (block, end) = (heads.query_block(), s.min(first + KEY_BLOCK));
    (first..end).step_by(block).map(move |start| start..(start + block).min(end))
}

/// Weights of a block of queries for the keys of a tile, and their gradients.
struct Scratch {
    weights: Vec<f32>,
    dscores: Vec<f32>,
}

impl Scratch {
    fn new(heads: &Heads<'_>) -> Self {
        let len = heads.query_block() * heads.group.len() * KEY_BLOCK;
        Self { weights: vec![0.0; len], dscores: vec![0.0; len] }
    }
}

struct Tile<'a> {
    heads: &'a Heads<'a>,
    rows: &'a Rows,
    /// Which tile the queries are.
    queries: usize,
    /// Which tile the keys are.
    keys: usize,
}

impl Tile<'_> {
    /// `dq` belongs to the tile's queries, `dk` and `dv` to its keys.
    fn add_gradients(&self, scratch: &mut Scratch, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]) {
        let (heads, rows) = (self.heads, self.rows);
        let (s, a, group) = (heads.call.geometry.s, heads.call.geometry.a, heads.group.len());
        let first = self.queries * KEY_BLOCK;
        let keys_end = s.min((self.keys + 1) * KEY_BLOCK);
        let first_keys = &rows.first_keys[self.queries * rows.blocks_of_tile..];
        for (queries, first_key) in blocks_of(heads, s, first).zip(first_keys) {
            // A key after the last query is read by none.
            let start = self.keys * KEY_BLOCK;
            let keys = start.max(*first_key)..keys_end.min(queries.end);
            if keys.is_empty() {
                continue;
            }
            let of_tile = (queries.start - first) * group * a..(queries.end - first) * group * a;
            let columns = (keys.start - start) * a..(keys.end - start) * a;
            let block = Block { heads, rows, queries, keys };
            block.add_gradients(
                scratch,
                &mut dq[of_tile],
                &mut dk[columns.clone()],
                &mut dv[columns],
            );
        }
    }
}

struct Block<'a> {
    heads: &'a Heads<'a>,
    rows: &'a Rows,
    queries: Range<usize>,
    keys: Range<usize>,
}

impl Block<'_> {
    /// The gradients belong to exactly these queries and keys.
    fn add_gradients(&self, scratch: &mut Scratch, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]) {
        let (heads, (a, group)) =
            (self.heads, (self.heads.call.geometry.a, self.heads.group.len()));
        let (of_task, width) =
            (self.queries.start * group..self.queries.end * group, self.keys.len());
        let num_rows = of_task.len();
        let values = of_task.start * a..of_task.end * a;
        let placed = Matrix::new(&self.rows.placed[values.clone()], num_rows, a);
        let dy = Matrix::new(&self.rows.dy[values], num_rows, a);
        let weights = &mut scratch.weights[..num_rows * width];
        let dscores = &mut scratch.dscores[..num_rows * width];
        heads.weigh(weights, placed, self.queries.clone(), self.keys.clone());
        multiply(dscores, Factors::REPLACE, dy, heads.values(self.keys.clone()).transposed());
        vectorised(SoftmaxBackward {
            weights,
            grads: dscores,
            inverse_sum: &self.rows.inverse_sum[of_task.clone()],
            delta: &self.rows.delta[of_task],
        });
        let weights = Matrix::new(weights, num_rows, width);
        let dscores = Matrix::new(dscores, num_rows, width);
        let scaled = Factors::ADD.scaled(heads.scale());
        multiply(dv, Factors::ADD, weights.transposed(), dy);
        multiply(dk, scaled, dscores.transposed(), placed);
        multiply(dq, scaled, dscores, heads.placed_keys(self.keys.clone()));
    }
}

/// Row by row, weights become probabilities, and the gradient of a probability that of its score:
/// `ds = p (dp - sum of p dp)`.
struct SoftmaxBackward<'a> {
    weights: &'a mut [f32],
    grads: &'a mut [f32],
    inverse_sum: &'a [f32],
    delta: &'a [f32],
}

impl Loop for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let width = self.weights.len() / self.delta.len();
        let values = self.weights.chunks_exact_mut(width).zip(self.grads.chunks_exact_mut(width));
        let of_rows = self.inverse_sum.iter().zip(self.delta);
        for ((weights, grads), (inverse_sum, delta)) in values.zip(of_rows) {
            for (weight, grad) in weights.iter_mut().zip(grads) {
                *weight *= inverse_sum;
                *grad = *weight * (*grad - delta);
            }
        }
    }
}
