//! What happens to a single head at a single position; a cube for each. `rows` are those of all
//! rows of the batch.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]
#![allow(clippy::collapsible_if, reason = "what a kernel is compiled for is asked on its own")]

use cubecl::prelude::*;

use super::heads::{Heads, own_head};
use crate::cube::tile::SIDE;
use crate::cube::units::sum_of_units;

/// The first `kept` of `stored` heads, each over its root mean square and, if `rotated`, turned by
/// its position.
#[cube(launch)]
pub(crate) fn place<F: Float>(
    x: &[F],
    turns: &[f32],
    placed: &mut [f32],
    s: usize,
    rows: usize,
    eps: f32,
    #[comptime] stored: usize,
    #[comptime] kept: usize,
    #[comptime] a: usize,
    #[comptime] rotated: bool,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let (row, head) = (CUBE_POS / kept, CUBE_POS % kept);
    if row >= rows {
        terminate!();
    }
    let start = (row * stored + head) * a;
    let inverse = inverse_rms::<F>(x, start, eps, a, units);
    for i in range_stepped(UNIT_POS as usize, a, units) {
        let mut value = f32::cast_from(x[start + i]) * inverse;
        if comptime!(rotated) {
            if i < a / 2 {
                let other = f32::cast_from(x[start + (i ^ 1)]) * inverse;
                value = turned(turns, row % s, i, value, other, 1.0, a);
            }
        }
        placed[CUBE_POS * a + i] = value;
    }
}

/// Turns gradients of what [`place`] returns into those of `x`; stored heads that were not kept
/// have none.
///
/// A rotation keeps inner products, so with n the normalised head and dn its gradient, both still
/// rotated: dx = (dn - n mean(n dn)) / rms, rotated back.
#[cube(launch)]
pub(crate) fn pull_back<F: Float>(
    x: &[F],
    placed: &[f32],
    grad: &[f32],
    turns: &[f32],
    dx: &mut [F],
    s: usize,
    rows: usize,
    eps: f32,
    #[comptime] stored: usize,
    #[comptime] kept: usize,
    #[comptime] a: usize,
    #[comptime] rotated: bool,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let (row, head) = (CUBE_POS / stored, CUBE_POS % stored);
    if row >= rows {
        terminate!();
    }
    let (unit, start) = (UNIT_POS as usize, CUBE_POS * a);
    if head >= kept {
        for i in range_stepped(unit, a, units) {
            dx[start + i] = F::new(0.0);
        }
    } else {
        let of_head = (row * kept + head) * a;
        let inverse = inverse_rms::<F>(x, start, eps, a, units);
        let mut dot = 0.0f32;
        for i in range_stepped(unit, a, units) {
            dot += placed[of_head + i] * grad[of_head + i];
        }
        let pull = sum_of_units(dot, units) / f32::cast_from(a.runtime());
        for i in range_stepped(unit, a, units) {
            let mut value = grad[of_head + i] - placed[of_head + i] * pull;
            if comptime!(rotated) {
                if i < a / 2 {
                    let at = of_head + (i ^ 1);
                    let other = grad[at] - placed[at] * pull;
                    value = turned(turns, row % s, i, value, other, -1.0, a);
                }
            }
            dx[start + i] = F::cast_from(inverse * value);
        }
    }
}

/// Value `i` of a head turned by position `t`, or back for `direction` -1; `other` is the other
/// value of its pair. `turns` holds the positions of a tile and then the first ones of all tiles.
#[cube]
fn turned(
    turns: &[f32],
    t: usize,
    i: usize,
    value: f32,
    other: f32,
    direction: f32,
    #[comptime] a: usize,
) -> f32 {
    let pairs = comptime!(a / 4);
    let first = (t % SIDE * pairs + i / 2) * 2;
    let second = ((SIDE + t / SIDE) * pairs + i / 2) * 2;
    let (cos, sin) = (turns[first], turns[first + 1]);
    let (cos_of_tile, sin_of_tile) = (turns[second], turns[second + 1]);
    let sin_of_sum = sin * cos_of_tile + cos * sin_of_tile;
    let cos = cos * cos_of_tile - sin * sin_of_tile;
    let sin = sin_of_sum * direction;
    value * cos + select(i % 2 == 1, sin, -sin) * other
}

/// `out = y - (y v / (|v|^2 + eps)) v`.
#[cube(launch)]
pub(crate) fn exclude<F: Float>(
    y: &[F],
    v: &[F],
    out: &mut [F],
    rows: usize,
    eps: f32,
    #[comptime] heads: Heads,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let (row, head) = (CUBE_POS / heads.h, CUBE_POS % heads.h);
    if row >= rows {
        terminate!();
    }
    let (of_y, of_v) = (CUBE_POS * heads.a, (row * heads.j + own_head(head, heads)) * heads.a);
    let unit = UNIT_POS as usize;
    let along = dot_of_units::<F>(y, of_y, v, of_v, heads.a, units);
    let square = dot_of_units::<F>(v, of_v, v, of_v, heads.a, units);
    let share = along / (square + eps);
    for i in range_stepped(unit, heads.a, units) {
        let value = f32::cast_from(y[of_y + i]) - share * f32::cast_from(v[of_v + i]);
        out[of_y + i] = F::cast_from(value);
    }
}

/// The gradients of [`exclude`] of all heads that read an own kv head: `dy`, and their part of
/// `dv` [rows, own, a] in order. With n = |v|^2 + eps: dy = g - (g v / n) v and
/// dv = -(y v / n) g - (g v / n) (y - 2 (y v / n) v).
///
/// `of_rows` [rows, h, 2] gets what is needed of each row of weights: one over its sum, and `dy y`.
#[cube(launch)]
pub(crate) fn exclude_backward<F: Float>(
    y: &[F],
    v: &[F],
    grad: &[F],
    inverse_sum: &[f32],
    dy: &mut [f32],
    dv: &mut [f32],
    of_rows: &mut [f32],
    rows: usize,
    eps: f32,
    #[comptime] heads: Heads,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let (row, own) = (CUBE_POS / heads.own, CUBE_POS % heads.own);
    if row >= rows {
        terminate!();
    }
    let (of_dv, of_v) = (CUBE_POS * heads.a, (row * heads.j + own) * heads.a);
    let unit = UNIT_POS as usize;
    let inverse = 1.0 / (dot_of_units::<F>(v, of_v, v, of_v, heads.a, units) + eps);
    for i in range_stepped(unit, heads.a, units) {
        dv[of_dv + i] = 0.0;
    }
    for head in 0..heads.h {
        if own_head(head, heads) == own {
            let of_y = (row * heads.h + head) * heads.a;
            let y_share = dot_of_units::<F>(y, of_y, v, of_v, heads.a, units) * inverse;
            let grad_share = dot_of_units::<F>(grad, of_y, v, of_v, heads.a, units) * inverse;
            let mut dot = 0.0f32;
            for i in range_stepped(unit, heads.a, units) {
                let (y, g) = (f32::cast_from(y[of_y + i]), f32::cast_from(grad[of_y + i]));
                let v = f32::cast_from(v[of_v + i]);
                let pulled = g - grad_share * v;
                dy[of_y + i] = pulled;
                dot += pulled * y;
                dv[of_dv + i] -= y_share * g + grad_share * (y - 2.0 * y_share * v);
            }
            let dot = sum_of_units(dot, units);
            if unit == 0 {
                let of_row = row * heads.h + head;
                of_rows[of_row * 2] = inverse_sum[of_row];
                of_rows[of_row * 2 + 1] = dot;
            }
        }
    }
}

/// One over the root mean square of `len` values.
#[cube]
fn inverse_rms<F: Float>(
    x: &[F],
    start: usize,
    eps: f32,
    #[comptime] len: usize,
    #[comptime] units: usize,
) -> f32 {
    let square = dot_of_units::<F>(x, start, x, start, len, units);
    1.0 / (square / f32::cast_from(len.runtime()) + eps).sqrt()
}

/// The inner product of `len` values of both.
#[cube]
fn dot_of_units<F: Float>(
    x: &[F],
    of_x: usize,
    y: &[F],
    of_y: usize,
    #[comptime] len: usize,
    #[comptime] units: usize,
) -> f32 {
    let mut dot = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, len, units) {
        dot += f32::cast_from(x[of_x + i]) * f32::cast_from(y[of_y + i]);
    }
    sum_of_units(dot, units)
}

/// The gradients of own heads as those of stored heads, of which the others have none; a unit for
/// each value.
#[cube(launch)]
pub(crate) fn spread<F: Float>(
    own: &[f32],
    stored: &mut [F],
    len: usize,
    #[comptime] heads: Heads,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= len {
        terminate!();
    }
    let (head, i) = (ABSOLUTE_POS / heads.a, ABSOLUTE_POS % heads.a);
    let (row, head) = (head / heads.j, head % heads.j);
    let mut value = 0.0f32;
    if head < heads.own {
        value = own[(row * heads.own + head) * heads.a + i];
    }
    stored[ABSOLUTE_POS] = F::cast_from(value);
}
