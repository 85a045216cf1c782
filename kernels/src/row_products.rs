//! Products of the rows of an expert with its matrices, where the `gemm` crate is slower.
//!
//! It walks down panels of columns, which is too far from row to row for a processor to guess: with
//! few rows it waits for memory. Here rows ahead are asked for. And it computes in registers of
//! eight values, where a processor with AVX-512 has twice as many.

mod dots;
mod outer;

use crate::simd::{Loop, MulAdd, has_avx512, prefetch, vectorised};

pub(crate) use dots::{fits_transposed, multiply_transposed};
pub(crate) use outer::{fits_outer, write_outer};

/// From here on the blocked products of the `gemm` crate are as fast as these in AVX2.
const FEW_ROWS: usize = 32;

/// Rows of a register tile.
const TILE_ROWS: usize = 6;

/// Columns that are written at once where they do not fill a [`PANEL`]: a cache line.
const LANES: usize = 16;

/// Columns of a register tile with 32 vector registers of 16 values.
const PANEL: usize = 64;

/// Rows between asking for a row of the matrix and using it.
const AHEAD: usize = 24;

/// Whether [`multiply`] takes a product of these sizes.
pub(crate) fn fits([m, k, n]: [usize; 3]) -> bool {
    let is_few = m <= FEW_ROWS && n.is_multiple_of(LANES);
    m > 0 && k > 0 && (is_few || has_avx512() && n.is_multiple_of(PANEL))
}

/// `out = x w` with `x` [m, k], `w` [k, n] and n a multiple of 16.
pub(crate) fn multiply(out: &mut [f32], x: &[f32], w: &[f32], [m, k, n]: [usize; 3]) {
    check(out, x, w, [m, k, n]);
    let panels = if has_avx512() { n / PANEL * PANEL } else { 0 };
    vectorised(Panels::<PANEL> { out, x, w, k, n, columns: 0..panels });
    vectorised(Panels::<LANES> { out, x, w, k, n, columns: panels..n });
}

fn check(out: &[f32], x: &[f32], w: &[f32], [m, k, n]: [usize; 3]) {
    assert!(fits([m, k, n]), "a product of [{m}, {k}] and [{k}, {n}]");
    assert_eq!([out.len(), x.len(), w.len()], [m * n, m * k, k * n], "the sizes of a product");
}

/// `out = x w` in the panels of `WIDTH` columns that `columns` are.
struct Panels<'a, const WIDTH: usize> {
    out: &'a mut [f32],
    x: &'a [f32],
    w: &'a [f32],
    k: usize,
    n: usize,
    columns: std::ops::Range<usize>,
}

impl<const WIDTH: usize> Loop for Panels<'_, WIDTH> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let Self { out, x, w, k, n, columns } = self;
        for column in columns.step_by(WIDTH) {
            let tiles = out.chunks_mut(TILE_ROWS * n).zip(x.chunks(TILE_ROWS * k));
            for (i, (out, x)) in tiles.enumerate() {
                // Only the first tile finds its panel far away.
                let (w, at) = ((w, n, i == 0), (k, column));
                match x.len() / k {
                    1 => tile::<M, 1, WIDTH>(out, x, w, at),
                    2 => tile::<M, 2, WIDTH>(out, x, w, at),
                    3 => tile::<M, 3, WIDTH>(out, x, w, at),
                    4 => tile::<M, 4, WIDTH>(out, x, w, at),
                    5 => tile::<M, 5, WIDTH>(out, x, w, at),
                    _ => tile::<M, TILE_ROWS, WIDTH>(out, x, w, at),
                }
            }
        }
    }
}

/// `WIDTH` columns of `ROWS` rows, summed in registers.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators leave the sums in memory")]
fn tile<M: MulAdd, const ROWS: usize, const WIDTH: usize>(
    out: &mut [f32],
    x: &[f32],
    (w, n, is_first): (&[f32], usize, bool),
    (k, column): (usize, usize),
) {
    let mut sums = [[0.0f32; WIDTH]; ROWS];
    for (i, w_row) in w.chunks_exact(n).enumerate() {
        let ahead = (i + AHEAD) * n + column;
        if is_first && let Some(ahead) = w.get(ahead..ahead + WIDTH) {
            prefetch(ahead);
        }
        let values: &[f32; WIDTH] = w_row[column..].first_chunk().expect("a whole panel");
        for row in 0..ROWS {
            let factor = x[row * k + i];
            for lane in 0..WIDTH {
                sums[row][lane] = M::mul_add(factor, values[lane], sums[row][lane]);
            }
        }
    }
    for (out, sums) in out.chunks_exact_mut(n).zip(&sums) {
        out[column..][..WIDTH].copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{self, Factors, Matrix};

    #[test]
    fn products_of_rows_are_those_of_gemm() {
        for m in [1, 5, 6, 7, 16, 17, FEW_ROWS] {
            for [k, n] in [[1, 16], [7, 48], [40, 144]] {
                let (x, w, mut found) = (values(m * k), values(k * n), vec![7.0; m * n]);
                let x_matrix = Matrix::new(&x, m, k);
                let mut expected = vec![0.0; m * n];
                let replace = Factors::REPLACE;
                multiply(&mut found, &x, &w, [m, k, n]);
                matrix::multiply(&mut expected, replace, x_matrix, Matrix::new(&w, k, n));
                assert_close(&found, &expected);
            }
        }
    }

    pub(super) fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i * 37 % 101) as f32 * 0.02 - 1.0).collect()
    }

    pub(super) fn assert_close(found: &[f32], expected: &[f32]) {
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= 1e-4, "[{i}]: found {found}, expected {expected}");
        }
    }
}
