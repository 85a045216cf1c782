//! `x w^T`: each value is the product of two rows that lie in order in memory.

#[cfg(target_arch = "x86_64")]
mod tile;

use super::{FEW_ROWS, LANES};
use crate::simd::has_avx512;

/// Values of a row from which on products of many rows are worth the sums over lanes at their ends.
const LONG: usize = 256;

/// Whether [`multiply_transposed`] takes a product of these sizes. Without AVX-512 it takes none:
/// the `gemm` crate is as fast.
pub(crate) fn fits_transposed([m, k, n]: [usize; 3]) -> bool {
    let is_worth_it = m <= FEW_ROWS || k >= LONG;
    has_avx512() && is_worth_it && m > 0 && k > 0 && k.is_multiple_of(LANES) && n > 0
}

/// `out = x w^T`, or with `add` that much more, with `x` [m, k], `w` [n, k] and k a multiple of 16.
pub(crate) fn multiply_transposed(
    out: &mut [f32],
    add: bool,
    x: &[f32],
    w: &[f32],
    [m, k, n]: [usize; 3],
) {
    assert!(fits_transposed([m, k, n]), "a product of [{m}, {k}] and [{n}, {k}]^T");
    assert_eq!([out.len(), x.len(), w.len()], [m * n, m * k, n * k], "the sizes of a product");
    #[cfg(target_arch = "x86_64")]
    tile::multiply(out, add, x, w, [k, n]);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = add;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Factors, Matrix, multiply};
    use crate::row_products::tests::{assert_close, values};

    #[test]
    fn transposed_products_are_those_of_gemm() {
        for m in [1, 3, 4, 7, 8, 33] {
            for [k, n] in [[16, 1], [48, 7], [272, 40]] {
                if !fits_transposed([m, k, n]) {
                    continue;
                }
                let (x, w) = (values(m * k), values(n * k));
                let (mut found, mut expected) = (vec![7.0; m * n], vec![7.0; m * n]);
                for (add, factors) in [(false, Factors::REPLACE), (true, Factors::ADD)] {
                    let (of_x, of_w) = (Matrix::new(&x, m, k), Matrix::new(&w, n, k));
                    multiply(&mut expected, factors, of_x, of_w.transposed());
                    multiply_transposed(&mut found, add, &x, &w, [m, k, n]);
                    assert_close(&found, &expected);
                }
            }
        }
    }
}
