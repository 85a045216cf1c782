#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::values::{in_bounds, sigmoid};

/// `sum s_j / (total of s + epsilon)`; a unit for each slot, which forms the few terms of the total
/// itself.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    logits: &[F],
    selected: &[i32],
    out: &mut [F],
    e: usize,
    k: usize,
    sum: f32,
    epsilon: f32,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let token = ABSOLUTE_POS / k;
    let mut total = 0.0f32;
    for slot in 0..k {
        total += chosen::<F>(logits, selected[token * k + slot], token, e);
    }
    let s = chosen::<F>(logits, selected[ABSOLUTE_POS], token, e);
    out[ABSOLUTE_POS] = F::cast_from(s * sum / (total + epsilon));
}

/// With T the total: `dlogit_j = sum / T (dw_j - dw.s / T) s_j (1 - s_j)`, an id that occurs twice
/// gets both; a cube for each token.
#[cube(launch)]
pub(crate) fn backward<F: Float>(
    logits: &[F],
    selected: &[i32],
    grad: &[F],
    dlogits: &mut [F],
    e: usize,
    sum: f32,
    epsilon: f32,
    #[comptime] k: usize,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let token = CUBE_POS;
    if token * e >= dlogits.len() {
        terminate!();
    }
    let mut s = Shared::<[f32]>::new_slice(k);
    let mut dw = Shared::<[f32]>::new_slice(k);
    let mut columns = Shared::<[i32]>::new_slice(k);
    for slot in range_stepped(UNIT_POS as usize, k, units) {
        let id = selected[token * k + slot];
        let is_chosen = in_bounds(id, e);
        s[slot] = chosen::<F>(logits, id, token, e);
        // The gradient of a slot without an expert may be infinite or NaN.
        dw[slot] = select(is_chosen, f32::cast_from(grad[token * k + slot]), 0.0);
        columns[slot] = select(is_chosen, id, -1);
    }
    sync_cube();
    let mut total = epsilon;
    let mut dot = 0.0f32;
    for slot in 0..k {
        total += s[slot];
        dot += s[slot] * dw[slot];
    }
    let pull = dot / total;
    for column in range_stepped(UNIT_POS as usize, e, units) {
        let mut value = 0.0f32;
        for slot in 0..k {
            if columns[slot] == column as i32 {
                value += sum / total * (dw[slot] - pull) * s[slot] * (1.0 - s[slot]);
            }
        }
        dlogits[token * e + column] = F::cast_from(value);
    }
}

/// The sigmoid of the logit of a chosen expert, 0 for none.
#[cube]
fn chosen<F: Float>(logits: &[F], id: i32, token: usize, e: usize) -> f32 {
    let mut s = 0.0f32;
    if in_bounds(id, e) {
        s = sigmoid(f32::cast_from(logits[token * e + id as usize]));
    }
    s
}
