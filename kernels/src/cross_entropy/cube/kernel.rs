#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::in_bounds;

/// Losses of tokens from `first` on, whose logits are `logits`; a cube for each token.
///
/// `values` of a token are its cross-entropy and its log-sum-exp, or, if `weighted`,
/// `weight ce` and `weight lse^2`. With `slopes`, the logits are replaced by their gradient
/// `weight ((1 + 2 z lse) softmax - onehot(target))`.
///
/// Where a token with weight has a target beyond the vocabulary, its cross-entropy and its slopes
/// are `nan`, which is an argument since a shader cannot name it.
#[cube(launch)]
pub(crate) fn losses(
    logits: &mut [f32],
    targets: &[i32],
    weights: &[f32],
    values: &mut [f32],
    first: usize,
    tokens: usize,
    v: usize,
    z: f32,
    nan: f32,
    #[comptime] weighted: bool,
    #[comptime] slopes: bool,
    #[comptime] units: usize,
) {
    if CUBE_POS >= tokens {
        terminate!();
    }
    let (unit, start, token) = (UNIT_POS as usize, CUBE_POS * v, first + CUBE_POS);
    let (target, weight) = (targets[token], weights[token]);
    let mut of_target = nan;
    if in_bounds(target, v) {
        of_target = logits[start + target as usize];
    }
    let mut largest = f32::min_value();
    for i in range_stepped(unit, v, units) {
        largest = max(largest, logits[start + i]);
    }
    let largest = max_of_units(largest, units);
    let mut sum = 0.0f32;
    for i in range_stepped(unit, v, units) {
        sum += (logits[start + i] - largest).exp();
    }
    let sum = sum_of_units(sum, units);
    let log_sum = sum.ln();
    let lse = log_sum + largest;
    let nll = log_sum - (of_target - largest);
    if unit == 0 {
        if comptime!(weighted) {
            // Not a product: what is ignored may be NaN.
            let is_ignored = weight == 0.0;
            values[token * 2] = select(is_ignored, 0.0, weight * nll);
            values[token * 2 + 1] = select(is_ignored, 0.0, weight * lse * lse);
        } else {
            values[token * 2] = nll;
            values[token * 2 + 1] = lse;
        }
    }
    if comptime!(slopes) {
        let mut scale = weight * (1.0 + 2.0 * z * lse) / sum;
        if weight != 0.0 && !in_bounds(target, v) {
            scale = nan;
        }
        for i in range_stepped(unit, v, units) {
            let mut slope = (logits[start + i] - largest).exp() * scale;
            if i as i32 == target {
                slope -= weight;
            }
            logits[start + i] = slope;
        }
    }
}

/// The largest of a value of each unit, a power of two of them, for all units to read.
#[cube]
fn max_of_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut values = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    values[unit] = value;
    sync_cube();
    let mut half = (units / 2).runtime();
    while half > 0 {
        if unit < half {
            values[unit] = max(values[unit], values[unit + half]);
        }
        sync_cube();
        half /= 2;
    }
    let largest = values[0];
    // Until all have read it, nobody may look again.
    sync_cube();
    largest
}

/// Adds `part` [.., columns] to the columns of `out` [.., v] from `first` on; a unit for each value
/// of `part`.
#[cube(launch)]
pub(crate) fn add_columns(
    part: &[f32],
    out: &mut [f32],
    columns: usize,
    first: usize,
    v: usize,
    len: usize,
) {
    if ABSOLUTE_POS >= len {
        terminate!();
    }
    let (row, column) = (ABSOLUTE_POS / columns, ABSOLUTE_POS % columns);
    out[row * v + first + column] += part[ABSOLUTE_POS];
}
