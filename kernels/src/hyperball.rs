//! The hyperball step: move along an update, then return to the old norm.
//!
//! `w1 = w - lr o |w| / |o|`, `w' = w1 |w| / |w1|`, with Frobenius norms: the rate is an angle and
//! the norm of a matrix never changes. A zero matrix, or one whose update is zero, stays as it is.

use burn::tensor::Tensor;
use rayon::prelude::*;

use crate::parallel::ELEMENT_BLOCK;

/// The step in plain tensor operations, per matrix of the stack or, if `joint`, as one matrix.
pub(crate) fn reference(w: Tensor<3>, update: Tensor<3>, lr: f64, joint: bool) -> Tensor<3> {
    let [n, p, q] = w.dims();
    let grouped = if joint { [1, n * p, q] } else { [n, p, q] };
    let (w, update) = (w.reshape(grouped), update.reshape(grouped));
    let old = norm(w.clone());
    let moved = w - update.clone() * (old.clone() * lr / nonzero(norm(update)));
    let new = nonzero(norm(moved.clone()));
    (moved * (old / new)).reshape([n, p, q])
}

fn norm(x: Tensor<3>) -> Tensor<3> {
    (x.clone() * x).sum_dim(2).sum_dim(1).sqrt()
}

/// One in place of zero: what it divides is zero then, and stays so.
fn nonzero(norm: Tensor<3>) -> Tensor<3> {
    let zero = norm.clone().equal_elem(0.0);
    norm.mask_fill(zero, 1.0)
}

/// The length of the step per unit of update, `lr |w| / |o|`; none if there is no step to take.
pub(crate) fn rate(lr: f64, w_squares: f64, update_squares: f64) -> Option<f32> {
    let moves = w_squares != 0.0 && update_squares != 0.0;
    moves.then(|| (lr * (w_squares / update_squares).sqrt()) as f32)
}

/// The factor `|w| / |w1|` back to the old norm.
pub(crate) fn rescale(w_squares: f64, moved_squares: f64) -> f32 {
    if moved_squares == 0.0 { 1.0 } else { (w_squares / moved_squares).sqrt() as f32 }
}

/// The sum of squares of a slice of any length: blocks in parallel, added in order.
pub(crate) fn sum_squares(x: &[f32]) -> f64 {
    let parts: Vec<f64> = x.par_chunks(ELEMENT_BLOCK).map(block_squares).collect();
    parts.iter().sum()
}

/// The sum of squares of a short slice, in eight lanes of f64.
#[inline(always)]
pub(crate) fn block_squares(x: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (chunks, rest) = x.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    lanes.iter().sum::<f64>() + rest
}

/// The step on the CPU over all of `w` as one matrix.
pub(crate) fn step(w: &mut [f32], update: &[f32], lr: f64) {
    let w_squares = sum_squares(w);
    let Some(rate) = rate(lr, w_squares, sum_squares(update)) else { return };
    let moved: Vec<f64> = w
        .par_chunks_mut(ELEMENT_BLOCK)
        .zip(update.par_chunks(ELEMENT_BLOCK))
        .map(|(w, update)| {
            for (w, update) in w.iter_mut().zip(update) {
                *w -= update * rate;
            }
            block_squares(w)
        })
        .collect();
    let scale = rescale(w_squares, moved.iter().sum());
    w.par_chunks_mut(ELEMENT_BLOCK).for_each(|w| w.iter_mut().for_each(|w| *w *= scale));
}
