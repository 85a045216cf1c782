//! `x^T y`: a sum over rows that fills a large matrix, which is written once.

use std::mem::MaybeUninit;

use super::{LANES, most_rows, wide_registers};
use crate::simd::{Loop, MulAdd, vectorised};

/// Rows of the result in a register tile.
const TILE_ROWS: usize = 4;

/// Whether [`write_outer`] takes a product of these sizes.
pub(crate) fn fits_outer([m, k, n]: [usize; 3]) -> bool {
    (1..=most_rows()).contains(&m) && k.is_multiple_of(TILE_ROWS) && n.is_multiple_of(LANES)
}

/// Writes every value of `out = x^T y` with `x` [m, k], `y` [m, n], k a multiple of 4 and n of 16.
pub(crate) fn write_outer(
    out: &mut [MaybeUninit<f32>],
    x: &[f32],
    y: &[f32],
    [m, k, n]: [usize; 3],
) {
    assert!(fits_outer([m, k, n]), "a product of [{m}, {k}]^T and [{m}, {n}]");
    assert_eq!([out.len(), x.len(), y.len()], [k * n, m * k, m * n], "the sizes of a product");
    const PANEL: usize = 4 * LANES;
    let panels = if wide_registers() { n / PANEL * PANEL } else { 0 };
    for (i, out) in out.chunks_exact_mut((TILE_ROWS * n).max(1)).enumerate() {
        let at = (k, n, i * TILE_ROWS);
        vectorised(Outer::<PANEL> { out, x, y, at, columns: 0..panels });
        vectorised(Outer::<LANES> { out, x, y, at, columns: panels..n });
    }
}

/// [`TILE_ROWS`] rows of the result, in panels of `WIDTH` columns that `columns` are.
struct Outer<'a, const WIDTH: usize> {
    out: &'a mut [MaybeUninit<f32>],
    x: &'a [f32],
    y: &'a [f32],
    /// Columns of `x` and of `y`, and the first of `x` that is taken.
    at: (usize, usize, usize),
    columns: std::ops::Range<usize>,
}

impl<const WIDTH: usize> Loop for Outer<'_, WIDTH> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "iterators leave the sums in memory")]
    fn run<M: MulAdd>(self) {
        let (k, n, first) = self.at;
        for column in self.columns.step_by(WIDTH) {
            let mut sums = [[0.0f32; WIDTH]; TILE_ROWS];
            for (x, y) in self.x.chunks_exact(k).zip(self.y.chunks_exact(n)) {
                let factors: &[f32; TILE_ROWS] = x[first..].first_chunk().expect("a tile");
                let values: &[f32; WIDTH] = y[column..].first_chunk().expect("a whole panel");
                for row in 0..TILE_ROWS {
                    for lane in 0..WIDTH {
                        sums[row][lane] = M::mul_add(factors[row], values[lane], sums[row][lane]);
                    }
                }
            }
            for (out, sums) in self.out.chunks_exact_mut(n).zip(&sums) {
                out[column..][..WIDTH].write_copy_of_slice(sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::row_products::tests::{assert_close, values};
    use crate::unwritten::Unwritten;

    #[test]
    fn sums_over_row_products_are_those_over_many() {
        for m in [1, 2, 7, 32] {
            for [k, n] in [[4, 16], [8, 48], [40, 144]] {
                let (x, y) = (values(m * k), values(m * n));
                let [mut found, mut expected] = [(); 2].map(|()| Unwritten::new(k * n));
                let (of_x, of_y) = (Matrix::new(&x, m, k), Matrix::new(&y, m, n));
                expected.whole().product(of_x.transposed(), of_y);
                found.whole().outer(&x, &y, [m, k, n]);
                assert_close(&found.finish(), &expected.finish());
            }
        }
    }
}
