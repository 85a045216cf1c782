#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

/// Counts each margin in its bin, `floor((margin - low) scale / width) - first`; a unit for each.
///
/// Whole numbers add up to the same in any order, so that atomics repeat.
#[cube(launch)]
pub(crate) fn histogram<F: Float>(
    logits: &[F],
    alpha: &[F],
    token_valid: &[i32],
    counts: &[Atomic<i32>],
    t: usize,
    e: usize,
    len: usize,
    low: f32,
    scale: f32,
    width: f32,
    first: f32,
    #[define(F)] _dtype: ElemType,
) {
    let (token, expert) = (ABSOLUTE_POS / e, ABSOLUTE_POS % e);
    if token >= t {
        terminate!();
    }
    if token_valid[token] != 0 {
        let margin = f32::cast_from(logits[ABSOLUTE_POS]) - f32::cast_from(alpha[token]);
        // Of whole numbers at most `len` apart the difference is exact.
        let bin = ((margin - low) * scale / width).floor() - first;
        let last = f32::cast_from(len - 1);
        // The cast of NaN may be any value, so it is bounded again.
        let bin = i32::cast_from(bin.clamp(0.0, last)).clamp(0, len as i32 - 1);
        counts[expert * len + bin as usize].fetch_add(1);
    }
}

/// The last bin of a row whose count from the top reaches `rank`, that count and the bin's own; a
/// cube for each row, whose units add up its bins block by block, until one walks down.
#[cube(launch)]
pub(crate) fn crossings(
    counts: &[i32],
    crossings: &mut [i32],
    len: usize,
    rank: i32,
    #[comptime] units: usize,
) {
    let row = CUBE_POS;
    if row * 3 >= crossings.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let block = len.div_ceil(units);
    let mut sums = Shared::<[i32]>::new_slice(units);
    let mut sum = 0i32;
    for bin in min(unit * block, len)..min((unit + 1) * block, len) {
        sum += counts[row * len + bin];
    }
    sums[unit] = sum;
    sync_cube();
    if unit == 0 {
        let mut from_top = 0i32;
        let mut left = units.runtime();
        while left > 0 && from_top + sums[max(left, 1) - 1] < rank {
            from_top += sums[left - 1];
            left -= 1;
        }
        let mut bin = min(left * block, len);
        let mut is_found = false;
        while bin > 0 && !is_found {
            bin -= 1;
            from_top += counts[row * len + bin];
            is_found = from_top >= rank;
        }
        crossings[row * 3] = bin as i32;
        crossings[row * 3 + 1] = from_top;
        crossings[row * 3 + 2] = counts[row * len + bin];
    }
}
