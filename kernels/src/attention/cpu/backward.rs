//! Gradients of one task, block by block with the weights formed anew.

use std::ops::Range;

use super::heads::Heads;
use super::rows::exclude_backward;
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::dot;

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

/// Query blocks run in order, so every sum has one order.
pub(super) fn attend_backward(heads: &Heads<'_>, saved: Saved<'_>) -> Gradients {
    let (s, a, group) = (heads.call.geometry.s, heads.call.geometry.a, heads.group.len());
    let mut gradients =
        Gradients { dq: vec![0.0; s * group * a], dk: vec![0.0; s * a], dv: vec![0.0; s * a] };
    let block = heads.query_block();
    for start in (0..s).step_by(block) {
        backward_block(heads, saved, start..(start + block).min(s), &mut gradients);
    }
    let placed = heads.keys.chunks_exact(a);
    for (t, (dk, placed)) in gradients.dk.chunks_exact_mut(a).zip(placed).enumerate() {
        heads.call.placement.pull_back(t, heads.key(t), placed, dk);
    }
    gradients
}

fn backward_block(
    heads: &Heads<'_>,
    saved: Saved<'_>,
    queries: Range<usize>,
    Gradients { dq, dk, dv }: &mut Gradients,
) {
    let (a, group) = (heads.call.geometry.a, heads.group.len());
    let (first_row, rows) = (queries.start * group, queries.len() * group);
    let dq = &mut dq[first_row * a..][..rows * a];
    let placed = heads.placed_queries(queries.clone());
    let (dy, deltas) = value_gradients(heads, saved, queries.clone(), dv);
    let (placed_q, dy) = (Matrix::new(&placed, rows, a), Matrix::new(&dy, rows, a));
    let mut weights = heads.scores(queries.clone());
    let mut dscores = weights.clone();
    for keys in heads.key_blocks(queries.clone()) {
        let (width, scaled) = (keys.len(), Factors::ADD.scaled(heads.scale()));
        let weights = &mut weights[..rows * width];
        let dscores = &mut dscores[..rows * width];
        heads.weigh(weights, placed_q, queries.clone(), keys.clone());
        multiply(dscores, Factors::REPLACE, dy, heads.values(keys.clone()).transposed());
        let block = weights.chunks_exact_mut(width).zip(dscores.chunks_exact_mut(width));
        for (i, (weights, dscores)) in block.enumerate() {
            let inverse_sum = saved.inverse_sum[heads.query_index(first_row + i)];
            softmax_backward(weights, dscores, inverse_sum, deltas[i]);
        }
        let weights = Matrix::new(weights, rows, width);
        let dscores = Matrix::new(dscores, rows, width);
        let columns = keys.start * a..keys.end * a;
        multiply(&mut dv[columns.clone()], Factors::ADD, weights.transposed(), dy);
        multiply(&mut dk[columns], scaled, dscores.transposed(), placed_q);
        multiply(dq, scaled, dscores, heads.placed_keys(keys));
    }
    let block = dq.chunks_exact_mut(a).zip(placed.chunks_exact(a));
    for (i, (dq, placed)) in (first_row..).zip(block) {
        let q = &heads.call.q[heads.query_row(i)];
        heads.call.placement.pull_back(i / group, q, placed, dq);
    }
}

/// The gradient of `y = P v` for the rows of a block, and each row's inner product of it with y;
/// the exclusive step's own gradient of v is added to `dv`.
fn value_gradients(
    heads: &Heads<'_>,
    saved: Saved<'_>,
    queries: Range<usize>,
    dv: &mut [f32],
) -> (Vec<f32>, Vec<f32>) {
    let (a, group) = (heads.call.geometry.a, heads.group.len());
    let (eps, rows) = (heads.call.options.exclusive_eps as f32, queries.len() * group);
    let mut dy = vec![0.0; rows * a];
    let deltas = (queries.start * group..).zip(dy.chunks_exact_mut(a)).map(|(i, dy)| {
        let (t, row) = (i / group, heads.query_row(i));
        let (y, grad) = (&saved.y[row.clone()], &saved.grad[row]);
        exclude_backward([y, heads.value(t), grad], eps, dy, &mut dv[t * a..][..a]);
        dot(dy, y)
    });
    let deltas = deltas.collect();
    (dy, deltas)
}

/// Weights become probabilities, and the gradient of a probability that of its score:
/// `ds = p (dp - sum of p dp)`.
fn softmax_backward(weights: &mut [f32], grads: &mut [f32], inverse_sum: f32, delta: f32) {
    for (weight, grad) in weights.iter_mut().zip(grads) {
        *weight *= inverse_sum;
        *grad = *weight * (*grad - delta);
    }
}
