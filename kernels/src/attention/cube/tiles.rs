//! Scores, weights and their gradients, a tile of queries and a tile of keys at a time.
//!
//! `q` [b, s, h, a] and `k` [b, s, own, a] are placed; `v` is [b, s, j, a]. Scores are bounded (see
//! [`AttentionOptions`](crate::attention::AttentionOptions)), so no maximum is subtracted before
//! their exponential. Tiles that no query may read are skipped. `cubes` is the number of tiles that
//! cubes work on.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use super::heads::{HeadTile, Heads, Mask, own_head};
use crate::cube::tile::{
    DEPTH, PER_UNIT, PITCH, SIDE, SPAN, SUMS, add_product, add_weighted, column, row, tile, zeros,
};

/// What the units of a cube share: two tiles, and the weights of a pair of tiles.
pub(crate) const SHARED_BYTES: usize = (2 * DEPTH + SIDE) * PITCH * size_of::<f32>();

/// `y = P v`, and one over the sum of weights of each query; a cube for each tile of queries of a
/// head.
#[cube(launch)]
pub(crate) fn attend<F: Float>(
    q: &[f32],
    k: &[f32],
    v: &[F],
    segments: &[i32],
    ranges: &[i32],
    y: &mut [F],
    inverse_sum: &mut [f32],
    s: usize,
    window: usize,
    scale: f32,
    cubes: usize,
    #[comptime] heads: Heads,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let (query_tile, head, batch) = place_of_cube(s, heads.h);
    let own = own_head(head, heads);
    let mask = Mask { batch, s, window };
    let queries = HeadTile::new(batch, query_tile, head, s, heads.h, heads.a);
    let mut tiles = (tile(), tile());
    let mut weights = weights();
    let mut sums = zeros(heads.a.div_ceil(SIDE) * SUMS);
    let mut totals = zeros(PER_UNIT);
    for key_tile in mask.first_key_tile(query_tile)..query_tile + 1 {
        if mask.meets(ranges, query_tile, key_tile) {
            let keys = HeadTile::new(batch, key_tile, own, s, heads.own, heads.a);
            let mut scores = zeros(SUMS);
            let (left, right) = (queries.positions(), keys.positions());
            add_product::<f32, f32>(q, &left, k, &right, &mut tiles, &mut scores);
            #[unroll]
            for i in 0..PER_UNIT {
                #[unroll]
                for j in 0..PER_UNIT {
                    let (query, key) = (query_tile * SIDE + row(i), key_tile * SIDE + column(j));
                    let mut weight = 0.0f32;
                    if mask.allows(segments, query, key) {
                        weight = (scores[i * PER_UNIT + j] * scale).exp();
                    }
                    totals[i] += weight;
                    weights[column(j) * PITCH + row(i)] = weight;
                }
            }
            sync_cube();
            let values = HeadTile::new(batch, key_tile, own, s, heads.j, heads.a).values();
            add_weighted::<F>(&weights, v, &values, &mut tiles.1, &mut sums, heads.a);
        }
    }
    sum_rows(&mut totals, &mut weights);
    #[unroll]
    for i in 0..PER_UNIT {
        let query = query_tile * SIDE + row(i);
        totals[i] = 1.0 / totals[i];
        if query < s && column(0usize) == 0 {
            inverse_sum[(batch * s + query) * heads.h + head] = totals[i];
        }
    }
    write::<F>(y, &queries, s - query_tile * SIDE, &sums, &totals, heads.a, false);
}

/// The gradients of placed queries; a cube for each tile of queries of a head.
///
/// With p the probabilities and dp = dy v their gradients, that of a score is
/// `ds = p (dp - sum of p dp)`, and the sum is `dy y`. `of_rows` holds it beside one over the sum of
/// the weights.
#[cube(launch)]
pub(crate) fn query_gradients<F: Float>(
    q: &[f32],
    k: &[f32],
    v: &[F],
    dy: &[f32],
    of_rows: &[f32],
    segments: &[i32],
    ranges: &[i32],
    dq: &mut [f32],
    s: usize,
    window: usize,
    scale: f32,
    cubes: usize,
    #[comptime] heads: Heads,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let (query_tile, head, batch) = place_of_cube(s, heads.h);
    let own = own_head(head, heads);
    let mask = Mask { batch, s, window };
    let queries = HeadTile::new(batch, query_tile, head, s, heads.h, heads.a);
    let mut tiles = (tile(), tile());
    let mut weights = weights();
    let mut sums = zeros(heads.a.div_ceil(SIDE) * SUMS);
    for key_tile in mask.first_key_tile(query_tile)..query_tile + 1 {
        if mask.meets(ranges, query_tile, key_tile) {
            let keys = HeadTile::new(batch, key_tile, own, s, heads.own, heads.a);
            let values = HeadTile::new(batch, key_tile, own, s, heads.j, heads.a);
            let left = queries.positions();
            let mut scores = zeros(SUMS);
            add_product::<f32, f32>(q, &left, k, &keys.positions(), &mut tiles, &mut scores);
            let mut slopes = zeros(SUMS);
            add_product::<f32, F>(dy, &left, v, &values.positions(), &mut tiles, &mut slopes);
            #[unroll]
            for i in 0..PER_UNIT {
                #[unroll]
                for j in 0..PER_UNIT {
                    let (query, key) = (query_tile * SIDE + row(i), key_tile * SIDE + column(j));
                    let mut slope = 0.0f32;
                    if mask.allows(segments, query, key) {
                        let of_row = ((batch * s + query) * heads.h + head) * 2;
                        let weight = (scores[i * PER_UNIT + j] * scale).exp() * of_rows[of_row];
                        slope = weight * (slopes[i * PER_UNIT + j] - of_rows[of_row + 1]);
                    }
                    weights[column(j) * PITCH + row(i)] = slope;
                }
            }
            sync_cube();
            add_weighted::<f32>(&weights, k, &keys.values(), &mut tiles.1, &mut sums, heads.a);
        }
    }
    let len = s - query_tile * SIDE;
    write::<f32>(dq, &queries, len, &sums, &factors(scale), heads.a, false);
}

/// The gradients of placed keys, and what the weights add to those of values; a cube for each tile
/// of keys of an own head, which takes the query heads that read it in order.
#[cube(launch)]
pub(crate) fn key_gradients<F: Float>(
    q: &[f32],
    k: &[f32],
    v: &[F],
    dy: &[f32],
    of_rows: &[f32],
    segments: &[i32],
    ranges: &[i32],
    dk: &mut [f32],
    dv: &mut [f32],
    s: usize,
    window: usize,
    scale: f32,
    cubes: usize,
    #[comptime] heads: Heads,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let (key_tile, own, batch) = place_of_cube(s, heads.own);
    let mask = Mask { batch, s, window };
    let keys = HeadTile::new(batch, key_tile, own, s, heads.own, heads.a);
    let values = HeadTile::new(batch, key_tile, own, s, heads.j, heads.a).positions();
    let placed = keys.positions();
    let mut tiles = (tile(), tile());
    let mut weights = weights();
    let mut of_keys = zeros(heads.a.div_ceil(SIDE) * SUMS);
    let mut of_values = zeros(heads.a.div_ceil(SIDE) * SUMS);
    for head in 0..heads.h {
        if own_head(head, heads) == own {
            for query_tile in key_tile..mask.end_query_tile(key_tile) {
                if mask.meets(ranges, query_tile, key_tile) {
                    let queries = HeadTile::new(batch, query_tile, head, s, heads.h, heads.a);
                    let (right, rows) = (queries.positions(), queries.values());
                    let pair = Pair { key_tile, query_tile, head };
                    let mut sums = zeros(SUMS);
                    add_product::<f32, f32>(k, &placed, q, &right, &mut tiles, &mut sums);
                    weigh(&mut sums, &mut weights, &mask, &pair, segments, of_rows, scale, heads);
                    add_weighted::<f32>(&weights, dy, &rows, &mut tiles.1, &mut of_values, heads.a);
                    let mut slopes = zeros(SUMS);
                    add_product::<F, f32>(v, &values, dy, &right, &mut tiles, &mut slopes);
                    pull(&sums, &slopes, &mut weights, &mask, &pair, of_rows, heads);
                    add_weighted::<f32>(&weights, q, &rows, &mut tiles.1, &mut of_keys, heads.a);
                }
            }
        }
    }
    let len = s - key_tile * SIDE;
    write::<f32>(dk, &keys, len, &of_keys, &factors(scale), heads.a, false);
    write::<f32>(dv, &keys, len, &of_values, &factors(1.0), heads.a, true);
}

/// A tile of keys, one of queries, and the head of the queries.
#[derive(CubeType, Clone, Copy)]
struct Pair {
    key_tile: usize,
    query_tile: usize,
    head: usize,
}

/// Turns scores of keys, as rows, with queries, as columns, into probabilities, which shared memory
/// gets too.
#[cube]
fn weigh(
    sums: &mut Array<f32>,
    weights: &mut Shared<[f32]>,
    mask: &Mask,
    pair: &Pair,
    segments: &[i32],
    of_rows: &[f32],
    scale: f32,
    #[comptime] heads: Heads,
) {
    #[unroll]
    for i in 0..PER_UNIT {
        #[unroll]
        for j in 0..PER_UNIT {
            let (key, query) = (pair.key_tile * SIDE + row(i), pair.query_tile * SIDE + column(j));
            let mut weight = 0.0f32;
            if mask.allows(segments, query, key) {
                let of_row = ((mask.batch * mask.s + query) * heads.h + pair.head) * 2;
                weight = (sums[i * PER_UNIT + j] * scale).exp() * of_rows[of_row];
            }
            sums[i * PER_UNIT + j] = weight;
            weights[column(j) * PITCH + row(i)] = weight;
        }
    }
    sync_cube();
}

/// Leaves the gradients of scores in shared memory, for probabilities and their gradients.
#[cube]
fn pull(
    probabilities: &Array<f32>,
    slopes: &Array<f32>,
    weights: &mut Shared<[f32]>,
    mask: &Mask,
    pair: &Pair,
    of_rows: &[f32],
    #[comptime] heads: Heads,
) {
    #[unroll]
    for j in 0..PER_UNIT {
        let query = pair.query_tile * SIDE + column(j);
        let mut mean = 0.0f32;
        if query < mask.s {
            mean = of_rows[((mask.batch * mask.s + query) * heads.h + pair.head) * 2 + 1];
        }
        #[unroll]
        for i in 0..PER_UNIT {
            let sum = i * PER_UNIT + j;
            weights[column(j) * PITCH + row(i)] = probabilities[sum] * (slopes[sum] - mean);
        }
    }
    sync_cube();
}

/// The tile, the head and the row of the batch that this cube works on.
#[cube]
fn place_of_cube(s: usize, #[comptime] heads: usize) -> (usize, usize, usize) {
    let tiles = s.div_ceil(SIDE);
    (CUBE_POS % tiles, CUBE_POS / tiles % heads, CUBE_POS / tiles / heads)
}

/// Shared memory for the weights of a tile, column by column.
#[cube]
fn weights() -> Shared<[f32]> {
    Shared::<[f32]>::new_slice(SIDE * PITCH)
}

/// Adds up the parts that the units of a row hold, in order.
#[cube]
fn sum_rows(totals: &mut Array<f32>, shared: &mut Shared<[f32]>) {
    #[unroll]
    for i in 0..PER_UNIT {
        shared[column(0usize) * PITCH + row(i)] = totals[i];
    }
    sync_cube();
    #[unroll]
    for i in 0..PER_UNIT {
        let mut total = 0.0f32;
        for part in 0..SPAN {
            total += shared[part * PITCH + row(i)];
        }
        totals[i] = total;
    }
}

/// The same factor for all rows of a unit.
#[cube]
fn factors(factor: f32) -> Array<f32> {
    let mut factors = zeros(PER_UNIT);
    #[unroll]
    for i in 0..PER_UNIT {
        factors[i] = factor;
    }
    factors
}

/// Writes the sums of the first `len` positions of a tile, each position times its factor, or adds
/// them to what is there.
#[cube]
fn write<F: Float>(
    out: &mut [F],
    to: &HeadTile,
    len: usize,
    sums: &Array<f32>,
    factors: &Array<f32>,
    #[comptime] a: usize,
    #[comptime] adds: bool,
) {
    #[unroll]
    for part in 0..a.div_ceil(SIDE) {
        #[unroll]
        for i in 0..PER_UNIT {
            #[unroll]
            for j in 0..PER_UNIT {
                let value = part * SIDE + column(j);
                if row(i) < len && value < a {
                    let at = to.place(row(i), value);
                    let mut sum = sums[part * SUMS + i * PER_UNIT + j] * factors[i];
                    if comptime!(adds) {
                        sum += f32::cast_from(out[at]);
                    }
                    out[at] = F::cast_from(sum);
                }
            }
        }
    }
}
