#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::units::sum_of_units;
use crate::cube::values::is_finite;

/// In the place of an id.
const NONE: i32 = -1;

/// `k + 1` rounds, each of which finds the best of the scores that come after the one found before;
/// a cube for each row.
///
/// `nan` is an argument, since a shader cannot name it.
#[cube(launch)]
pub(crate) fn forward<F: Float>(
    scores: &[F],
    selected: &mut [i32],
    next: &mut [F],
    e: usize,
    k: usize,
    nan: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS;
    if row >= next.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut not_finite = 0.0f32;
    for id in range_stepped(unit, e, units) {
        if !is_finite(f32::cast_from(scores[row * e + id])) {
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
            let score = f32::cast_from(scores[row * e + id]);
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
                selected[row * k + slot] = select(is_ordered, id, NONE);
            } else {
                next[row] = F::cast_from(select(is_ordered, score, nan));
            }
        }
    }
}

/// Whether the score of `id` comes before that of `other_id`: it is larger, or equal with a lower
/// id.
#[cube]
pub(crate) fn comes_first(score: f32, id: i32, other: f32, other_id: i32) -> bool {
    score > other || (score == other && id < other_id)
}

/// The first of the scores of all units and its id; an id below 0 stands for no score.
#[cube]
pub(crate) fn best_of_units(score: f32, id: i32, #[comptime] units: usize) -> (f32, i32) {
    let mut scores = Shared::<[f32]>::new_slice(units);
    let mut ids = Shared::<[i32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    scores[unit] = score;
    ids[unit] = id;
    sync_cube();
    let mut half = (units / 2).runtime();
    while half > 0 {
        if unit < half {
            let (other, other_id) = (scores[unit + half], ids[unit + half]);
            let is_first = comes_first(other, other_id, scores[unit], ids[unit]);
            if other_id >= 0 && (ids[unit] < 0 || is_first) {
                scores[unit] = other;
                ids[unit] = other_id;
            }
        }
        sync_cube();
        half /= 2;
    }
    let (score, id) = (scores[0], ids[0]);
    // Until all have read them, nobody may write again.
    sync_cube();
    (score, id)
}
