//! Products of rows and the matrices of their groups, by tiles of [`crate::cube::tile`].
//!
//! `jobs` [jobs, 3] says what to compute: the group, the first row and the number of rows. A job of
//! rows has at most as many as a tile; one of weights has all rows of a group. `cubes` is the number
//! of tiles of all jobs, the columns of a job's tile counting first.

#![allow(clippy::too_many_arguments, reason = "the arguments of kernels")]

use cubecl::prelude::*;

use crate::cube::tile::{
    DEPTH, Lines, PER_UNIT, SIDE, SUMS, add_product, column, load, multiply, row, tile, zeros,
};
use crate::cube::values::sigmoid;

/// `gate = x w_gate` and `up = x w_up` in one pass over x, and `hidden = silu(gate) up`.
#[cube(launch)]
pub(crate) fn gate_up<F: Float>(
    x: &[F],
    w_gate: &[F],
    w_up: &[F],
    jobs: &[i32],
    gate: &mut [F],
    up: &mut [F],
    hidden: &mut [F],
    c: usize,
    f: usize,
    cubes: usize,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let job = Job::of_cube(jobs, f);
    let rows = job.rows(c);
    let columns = job.columns(c, f, false);
    let (mut left, mut right, mut other) = (tile(), tile(), tile());
    let mut gates = zeros(SUMS);
    let mut ups = zeros(SUMS);
    for first in range_stepped(0, c, DEPTH) {
        load::<F>(x, &rows, 0, first, &mut left);
        load::<F>(w_gate, &columns, 0, first, &mut right);
        load::<F>(w_up, &columns, 0, first, &mut other);
        sync_cube();
        multiply(&left, 0, &right, &mut gates, 0usize);
        multiply(&left, 0, &other, &mut ups, 0usize);
        sync_cube();
    }
    #[unroll]
    for i in 0..PER_UNIT {
        #[unroll]
        for j in 0..PER_UNIT {
            if job.has(row(i), column(j), f) {
                let at = job.place(row(i), column(j), f);
                let (z, u) = (gates[i * PER_UNIT + j], ups[i * PER_UNIT + j]);
                gate[at] = F::cast_from(z);
                up[at] = F::cast_from(u);
                hidden[at] = F::cast_from(z * sigmoid(z) * u);
            }
        }
    }
}

/// `out = rows weights` [.., n] with `rows` [.., m].
#[cube(launch)]
pub(crate) fn product<F: Float>(
    rows: &[F],
    weights: &[F],
    jobs: &[i32],
    out: &mut [F],
    m: usize,
    n: usize,
    cubes: usize,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let job = Job::of_cube(jobs, n);
    let mut tiles = (tile(), tile());
    let mut sums = zeros(SUMS);
    let columns = job.columns(m, n, false);
    add_product::<F, F>(rows, &job.rows(m), weights, &columns, &mut tiles, &mut sums);
    job.write::<F>(out, &sums, n);
}

/// `dx = d_gate w_gate^T + d_up w_up^T`.
#[cube(launch)]
pub(crate) fn input_gradient<F: Float>(
    d_gate: &[F],
    w_gate: &[F],
    d_up: &[F],
    w_up: &[F],
    jobs: &[i32],
    dx: &mut [F],
    c: usize,
    f: usize,
    cubes: usize,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let job = Job::of_cube(jobs, c);
    let mut tiles = (tile(), tile());
    let mut sums = zeros(SUMS);
    let columns = job.columns(f, c, true);
    add_product::<F, F>(d_gate, &job.rows(f), w_gate, &columns, &mut tiles, &mut sums);
    add_product::<F, F>(d_up, &job.rows(f), w_up, &columns, &mut tiles, &mut sums);
    job.write::<F>(dx, &sums, c);
}

/// With `dh = dout w_down^T` and s = sigmoid(gate): `hidden = silu(gate) up`,
/// `d_up = dh silu(gate)` and `d_gate = dh up s (1 + gate (1 - s))`.
#[cube(launch)]
pub(crate) fn hidden_gradients<F: Float>(
    dout: &[F],
    w_down: &[F],
    gate: &[F],
    up: &[F],
    jobs: &[i32],
    hidden: &mut [F],
    d_gate: &mut [F],
    d_up: &mut [F],
    c: usize,
    f: usize,
    cubes: usize,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let job = Job::of_cube(jobs, f);
    let mut tiles = (tile(), tile());
    let mut sums = zeros(SUMS);
    let columns = job.columns(c, f, true);
    add_product::<F, F>(dout, &job.rows(c), w_down, &columns, &mut tiles, &mut sums);
    #[unroll]
    for i in 0..PER_UNIT {
        #[unroll]
        for j in 0..PER_UNIT {
            if job.has(row(i), column(j), f) {
                let at = job.place(row(i), column(j), f);
                let dh = sums[i * PER_UNIT + j];
                let (z, u) = (f32::cast_from(gate[at]), f32::cast_from(up[at]));
                let s = sigmoid(z);
                hidden[at] = F::cast_from(z * s * u);
                d_up[at] = F::cast_from(dh * z * s);
                d_gate[at] = F::cast_from(dh * u * s * (1.0 + z * (1.0 - s)));
            }
        }
    }
}

/// `out[group] = left^T right` [m, n] over the rows of the group, with `left` [.., m] and `right`
/// [.., n]; zeros where it has none.
#[cube(launch)]
pub(crate) fn weight_gradient<F: Float>(
    left: &[F],
    right: &[F],
    jobs: &[i32],
    out: &mut [F],
    m: usize,
    n: usize,
    cubes: usize,
    #[define(F)] _dtype: ElemType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let (m_tiles, n_tiles) = (m.div_ceil(SIDE), n.div_ceil(SIDE));
    let first_column = CUBE_POS % n_tiles * SIDE;
    let first_row = CUBE_POS / n_tiles % m_tiles * SIDE;
    let job = CUBE_POS / n_tiles / m_tiles * 3;
    let (group, first) = (jobs[job] as usize, jobs[job + 1] as usize);
    let depth = jobs[job + 2] as usize;
    let rows = Lines {
        start: first * m + first_row,
        count: m - first_row,
        depth,
        stride: m,
        contiguous: false,
    };
    let columns = Lines {
        start: first * n + first_column,
        count: n - first_column,
        depth,
        stride: n,
        contiguous: false,
    };
    let mut tiles = (tile(), tile());
    let mut sums = zeros(SUMS);
    add_product::<F, F>(left, &rows, right, &columns, &mut tiles, &mut sums);
    #[unroll]
    for i in 0..PER_UNIT {
        #[unroll]
        for j in 0..PER_UNIT {
            let (at_row, at_column) = (first_row + row(i), first_column + column(j));
            if at_row < m && at_column < n {
                out[(group * m + at_row) * n + at_column] = F::cast_from(sums[i * PER_UNIT + j]);
            }
        }
    }
}

/// Rows of a group and a tile of columns.
#[derive(CubeType, Clone, Copy)]
struct Job {
    group: usize,
    first: usize,
    len: usize,
    first_column: usize,
}

#[cube]
impl Job {
    /// The job of this cube, whose result has `n` columns.
    fn of_cube(jobs: &[i32], n: usize) -> Job {
        let tiles = n.div_ceil(SIDE);
        let job = CUBE_POS / tiles * 3;
        Job {
            group: jobs[job] as usize,
            first: jobs[job + 1] as usize,
            len: jobs[job + 2] as usize,
            first_column: CUBE_POS % tiles * SIDE,
        }
    }

    /// Its rows of `m` columns as a left factor.
    fn rows(&self, m: usize) -> Lines {
        Lines { start: self.first * m, count: self.len, depth: m, stride: m, contiguous: true }
    }

    /// The columns of its group's matrix [m, n], or of the transpose of [n, m], as a right factor.
    fn columns(&self, m: usize, n: usize, #[comptime] transposed: bool) -> Lines {
        let matrix = self.group * m * n;
        let count = n - self.first_column;
        if comptime!(transposed) {
            let start = matrix + self.first_column * m;
            Lines { start, count, depth: m, stride: m, contiguous: true }
        } else {
            let start = matrix + self.first_column;
            Lines { start, count, depth: m, stride: n, contiguous: false }
        }
    }

    /// Whether a result of `n` columns has this row and column of the tile.
    fn has(&self, row: usize, column: usize, n: usize) -> bool {
        row < self.len && self.first_column + column < n
    }

    /// Where they lie in it.
    fn place(&self, row: usize, column: usize, n: usize) -> usize {
        (self.first + row) * n + self.first_column + column
    }
    /// Writes the sums of its tile to a result of `n` columns.
    fn write<F: Float>(&self, out: &mut [F], sums: &Array<f32>, n: usize) {
        #[unroll]
        for i in 0..PER_UNIT {
            #[unroll]
            for j in 0..PER_UNIT {
                if self.has(row(i), column(j), n) {
                    let at = self.place(row(i), column(j), n);
                    out[at] = F::cast_from(sums[i * PER_UNIT + j]);
                }
            }
        }
    }
}
