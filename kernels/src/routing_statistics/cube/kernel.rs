#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::{max_of_units, sum_of_units};
use crate::cube::values::is_finite;

/// The sums of blocks of tokens; a cube for each block, whose units share out the experts.
///
/// `least` is negative infinity and `nan` NaN, which a shader cannot name.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    logits: &[F],
    selected: &[i32],
    alpha: &[F],
    token_valid: &[i32],
    counts: &mut [i32],
    sums: &mut [f32],
    bounds: &mut [f32],
    t: usize,
    e: usize,
    k: usize,
    block: usize,
    least: f32,
    nan: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS;
    if row * 2 >= bounds.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let start = row * (e + 1);
    for expert in range_stepped(unit, e, units) {
        counts[start + expert] = 0;
        sums[start + expert] = 0.0;
    }
    let mut tokens = 0i32;
    let mut z = 0.0f32;
    let mut minus_low = least;
    let mut high = least;
    let mut not_finite = 0.0f32;
    // What padding holds may be NaN; it takes part until it is added, so that all units stay
    // together.
    for token in row * block..min((row + 1) * block, t) {
        let is_valid = token_valid[token] != 0;
        let next = f32::cast_from(alpha[token]);
        let mut best = least;
        for expert in range_stepped(unit, e, units) {
            let score = f32::cast_from(logits[token * e + expert]);
            let margin = score - next;
            best = max(best, score);
            if is_valid {
                minus_low = max(minus_low, -margin);
                high = max(high, margin);
                if !is_finite(margin) {
                    not_finite += 1.0;
                }
            }
        }
        let best = max_of_units(best, units);
        let mut total = 0.0f32;
        for expert in range_stepped(unit, e, units) {
            total += (f32::cast_from(logits[token * e + expert]) - best).exp();
        }
        let total = sum_of_units(total, units);
        if is_valid {
            for expert in range_stepped(unit, e, units) {
                let share = (f32::cast_from(logits[token * e + expert]) - best).exp() / total;
                sums[start + expert] += share;
                for slot in 0..k {
                    if selected[token * k + slot] == expert as i32 {
                        counts[start + expert] += 1;
                    }
                }
            }
            let log_sum_exp = best + total.ln();
            z += log_sum_exp * log_sum_exp;
            tokens += 1;
        }
    }
    let minus_low = max_of_units(minus_low, units);
    let high = max_of_units(high, units);
    let all_finite = sum_of_units(not_finite, units) == 0.0;
    if unit == 0 {
        counts[start + e] = tokens;
        sums[start + e] = z;
        bounds[row * 2] = select(all_finite, minus_low, nan);
        bounds[row * 2 + 1] = select(all_finite, high, nan);
    }
}
