//! Tiles of products of rows in AVX-512; the compiler does not find these registers by itself.

use std::arch::x86_64::{
    __m512, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_reduce_add_ps, _mm512_setzero_ps,
};

use crate::row_products::LANES;
use crate::simd::has_avx512;

/// Rows of `x`, and of `w`, whose sixteen sums lie in registers.
const SIDE: usize = 4;

/// As [`multiply_transposed`](super::multiply_transposed), which checks the sizes.
pub(super) fn multiply(out: &mut [f32], add: bool, x: &[f32], w: &[f32], [k, n]: [usize; 2]) {
    assert!(has_avx512(), "products of rows need AVX-512");
    // SAFETY: the processor has it.
    unsafe { in_tiles(out, add, x, w, [k, n]) }
}

/// Rows of `w` come from memory and are read once; those of `x` stay near.
#[target_feature(enable = "avx512f")]
fn in_tiles(out: &mut [f32], add: bool, x: &[f32], w: &[f32], [k, n]: [usize; 2]) {
    for (i, w) in w.chunks(SIDE * k).enumerate() {
        for (row, x) in x.chunks(SIDE * k).enumerate() {
            let out = &mut out[row * SIDE * n + i * SIDE..];
            if x.len() == SIDE * k && w.len() == SIDE * k {
                tile::<SIDE, SIDE>(out, add, (x, w), [k, n]);
            } else {
                for (row, x) in x.chunks_exact(k).enumerate() {
                    for (column, w) in w.chunks_exact(k).enumerate() {
                        tile::<1, 1>(&mut out[row * n + column..], add, (x, w), [k, n]);
                    }
                }
            }
        }
    }
}

/// `ROWS` rows of `x` times `COLUMNS` rows of `w`, k a multiple of 16.
#[target_feature(enable = "avx512f")]
#[inline]
fn tile<const ROWS: usize, const COLUMNS: usize>(
    out: &mut [f32],
    add: bool,
    (x, w): (&[f32], &[f32]),
    [k, n]: [usize; 2],
) {
    assert!(x.len() == ROWS * k && w.len() == COLUMNS * k && k.is_multiple_of(LANES));
    let mut sums = [[_mm512_setzero_ps(); COLUMNS]; ROWS];
    for i in (0..k).step_by(LANES) {
        // SAFETY: `i + LANES` is at most k, and `w` holds COLUMNS rows of k values.
        let load = |column: usize| unsafe { _mm512_loadu_ps(w.as_ptr().add(column * k + i)) };
        let of_w: [__m512; COLUMNS] = std::array::from_fn(load);
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: as above, with ROWS rows of `x`.
            let of_x = unsafe { _mm512_loadu_ps(x.as_ptr().add(row * k + i)) };
            for (sum, of_w) in sums.iter_mut().zip(of_w) {
                *sum = _mm512_fmadd_ps(of_x, of_w, *sum);
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        for (column, sum) in sums.into_iter().enumerate() {
            let (out, sum) = (&mut out[row * n + column], _mm512_reduce_add_ps(sum));
            *out = if add { *out + sum } else { sum };
        }
    }
}
