//! `counts` [rows, e + 1] holds for each row of the batch how many of its valid tokens chose each
//! expert, and then how many valid tokens there are. `f` of an expert is `e / (k n)` times its count.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::sigmoid;

/// The counts of blocks of tokens; a unit for each expert of a block, which looks through all
/// choices of the block, and one for the valid tokens.
#[cube(launch)]
pub(crate) fn count_choices(
    selected: &[i32],
    token_valid: &[i32],
    counts: &mut [f32],
    seq_len: usize,
    e: usize,
    k: usize,
    #[comptime] row_block: usize,
) {
    if ABSOLUTE_POS >= counts.len() {
        terminate!();
    }
    let (block, expert) = (ABSOLUTE_POS / (e + 1), ABSOLUTE_POS % (e + 1));
    let blocks = seq_len.div_ceil(row_block);
    let first = block % blocks * row_block;
    let end = min(first + row_block, seq_len);
    let start = block / blocks * seq_len;
    let mut count = 0.0f32;
    for token in start + first..start + end {
        if token_valid[token] != 0 {
            if expert == e {
                count += 1.0;
            } else {
                for slot in 0..k {
                    if selected[token * k + slot] == expert as i32 {
                        count += 1.0;
                    }
                }
            }
        }
    }
    counts[ABSOLUTE_POS] = count;
}

/// The part of each token in the loss of its row, `sum of f s / S / n`, 0 in padding; a cube for
/// each token.
#[cube(launch)]
pub(crate) fn token_losses<F: Float>(
    logits: &[F],
    token_valid: &[i32],
    counts: &[f32],
    losses: &mut [f32],
    seq_len: usize,
    e: usize,
    slots: f32,
    epsilon: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let token = CUBE_POS;
    if token >= losses.len() {
        terminate!();
    }
    let row = token / seq_len * (e + 1);
    let num_valid = max(counts[row + e], 1.0);
    let scale = f32::cast_from(e) / (slots * num_valid);
    let (total, pull) = shares::<F>(logits, token * e, counts, row, e, epsilon, units);
    if UNIT_POS == 0 {
        let loss = pull / total * scale / num_valid;
        losses[token] = select(token_valid[token] != 0, loss, 0.0);
    }
}

/// `dlogit = g / (n S) (f - sum of f s / S) s (1 - s)`, 0 in padding; a cube for each token.
#[cube(launch)]
pub(crate) fn gradients<F: Float>(
    logits: &[F],
    token_valid: &[i32],
    counts: &[f32],
    grad: &[F],
    dlogits: &mut [F],
    seq_len: usize,
    e: usize,
    slots: f32,
    epsilon: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let token = CUBE_POS;
    if token * e >= dlogits.len() {
        terminate!();
    }
    let row = token / seq_len * (e + 1);
    let num_valid = max(counts[row + e], 1.0);
    let scale = f32::cast_from(e) / (slots * num_valid);
    let (total, pull) = shares::<F>(logits, token * e, counts, row, e, epsilon, units);
    let factor = f32::cast_from(grad[token / seq_len]) / (num_valid * total) * scale;
    for i in range_stepped(UNIT_POS as usize, e, units) {
        let s = sigmoid(f32::cast_from(logits[token * e + i]));
        let value = factor * (counts[row + i] - pull / total) * s * (1.0 - s);
        // What padding holds may be NaN.
        dlogits[token * e + i] = F::cast_from(select(token_valid[token] != 0, value, 0.0));
    }
}

/// S, the sum of a token's sigmoids, and the sum of its sigmoids times the counts.
#[cube]
fn shares<F: Float>(
    logits: &[F],
    start: usize,
    counts: &[f32],
    row: usize,
    e: usize,
    epsilon: f32,
    #[comptime] units: usize,
) -> (f32, f32) {
    let mut total = 0.0f32;
    let mut pull = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, e, units) {
        let s = sigmoid(f32::cast_from(logits[start + i]));
        total += s;
        pull += s * counts[row + i];
    }
    (sum_of_units(total, units) + epsilon, sum_of_units(pull, units))
}
