#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::{is_finite, sigmoid};
use crate::top_k::{best_of_units, comes_first};

/// In the place of an id.
const NONE: i32 = -1;

/// `k + 1` rounds, each of which finds the best of the biased scores that come after the one found
/// before; then the weights of those found. A cube for each token.
///
/// `nan` is an argument, since a shader cannot name it.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    logits: &[F],
    bias: &[F],
    selected: &mut [i32],
    weights: &mut [F],
    alpha: &mut [F],
    e: usize,
    sum: f32,
    epsilon: f32,
    nan: f32,
    #[comptime] k: usize,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let token = CUBE_POS;
    if token >= alpha.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut s = Shared::<[f32]>::new_slice(k);
    let mut not_finite = 0.0f32;
    for id in range_stepped(unit, e, units) {
        if !is_finite(biased::<F>(logits, bias, token * e, id)) {
            not_finite += 1.0;
        }
    }
    let is_ordered = sum_of_units(not_finite, units) == 0.0;
    let mut last = 0.0f32;
    let mut last_id = NONE.runtime();
    // The rounds of a row without an order find something or nothing; all units take part in them.
    for slot in 0..k + 1 {
        let mut best = 0.0f32;
        let mut best_id = NONE.runtime();
        for id in range_stepped(unit, e, units) {
            let score = biased::<F>(logits, bias, token * e, id);
            let is_left = slot == 0 || comes_first(last, last_id, score, id as i32);
            // Ids rise, so that of equal scores the first stays.
            if is_left && (best_id < 0 || score > best) {
                best = score;
                best_id = id as i32;
            }
        }
        let (score, id) = best_of_units(best, best_id, units);
        last = score;
        last_id = id;
        if unit == 0 {
            if slot < k {
                let is_chosen = is_ordered && id >= 0;
                let column = select(is_chosen, id, 0) as usize;
                let chosen = sigmoid(f32::cast_from(logits[token * e + column]));
                s[slot] = select(is_chosen, chosen, 0.0);
                selected[token * k + slot] = select(is_chosen, id, NONE);
            } else {
                alpha[token] = F::cast_from(select(is_ordered, score, nan));
            }
        }
    }
    sync_cube();
    let mut total = epsilon;
    for slot in 0..k {
        total += s[slot];
    }
    for slot in range_stepped(unit, k, units) {
        weights[token * k + slot] = F::cast_from(s[slot] * sum / total);
    }
}

#[cube]
fn biased<F: Float>(logits: &[F], bias: &[F], start: usize, id: usize) -> f32 {
    f32::cast_from(logits[start + id]) + f32::cast_from(bias[id])
}
