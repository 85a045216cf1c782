//! `x^T y`: a sum over rows that fills a large matrix, which is written once.

use std::mem::MaybeUninit;

use super::PANEL;
use crate::simd::{Loop, MulAdd, has_avx512, vectorised};

/// Rows of the result in a register tile.
const TILE_ROWS: usize = 4;

/// Whether [`write_outer`] takes a product of these sizes. Without AVX-512 it takes none: the `gemm`
/// crate is as fast.
pub(crate) fn fits_outer([m, k, n]: [usize; 3]) -> bool {
    has_avx512() && m > 0 && k.is_multiple_of(TILE_ROWS) && n.is_multiple_of(PANEL)
}

/// Writes every value of `out = x^T y` with `x` [m, k], `y` [m, n], k a multiple of 4 and n of 64.
pub(crate) fn write_outer(
    out: &mut [MaybeUninit<f32>],
    x: &[f32],
    y: &[f32],
    [m, k, n]: [usize; 3],
) {
    assert!(fits_outer([m, k, n]), "a product of [{m}, {k}]^T and [{m}, {n}]");
    assert_eq!([out.len(), x.len(), y.len()], [k * n, m * k, m * n], "the sizes of a product");
    for (i, out) in out.chunks_exact_mut((TILE_ROWS * n).max(1)).enumerate() {
        vectorised(Outer { out, x, y, k, n, first: i * TILE_ROWS });
    }
}

/// [`TILE_ROWS`] rows of the result, those of the columns of `x` from `first` on.
struct Outer<'a> {
    out: &'a mut [MaybeUninit<f32>],
    x: &'a [f32],
    y: &'a [f32],
    k: usize,
    n: usize,
    first: usize,
}

impl Loop for Outer<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "iterators leave the sums in memory")]
    fn run<M: MulAdd>(self) {
        let Self { out, x, y, k, n, first } = self;
        for column in (0..n).step_by(PANEL) {
            let mut sums = [[0.0f32; PANEL]; TILE_ROWS];
            for (x, y) in x.chunks_exact(k).zip(y.chunks_exact(n)) {
                let factors: &[f32; TILE_ROWS] = x[first..].first_chunk().expect("a tile");
                let values: &[f32; PANEL] = y[column..].first_chunk().expect("a whole panel");
                for row in 0..TILE_ROWS {
                    for lane in 0..PANEL {
                        sums[row][lane] = M::mul_add(factors[row], values[lane], sums[row][lane]);
                    }
                }
            }
            for (out, sums) in out.chunks_exact_mut(n).zip(&sums) {
                out[column..][..PANEL].write_copy_of_slice(sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits_outer;
    use crate::matrix::Matrix;
    use crate::row_products::tests::{assert_close, values};
    use crate::unwritten::Unwritten;

    #[test]
    fn sums_over_rows_are_those_of_gemm() {
        for m in [1, 2, 7, 32] {
            for [k, n] in [[4, 64], [8, 128], [40, 192]] {
                if !fits_outer([m, k, n]) {
                    continue;
                }
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
