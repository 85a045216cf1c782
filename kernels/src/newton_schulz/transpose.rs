//! Transposes in blocks of 8 by 8; buffers are padded to whole blocks.

use rayon::prelude::*;

use super::product::LANES;

const BLOCK: usize = 8;

/// Writes the transpose of the `rows` by `columns` corner of `x` to `out`, both rounded up to
/// whole blocks; if `shared`, in parallel over rows of `out`.
pub(crate) fn transpose(
    (x, stride): (&[f32], usize),
    (out, out_stride): (&mut [f32], usize),
    [rows, columns]: [usize; 2],
    shared: bool,
) {
    let column_of_blocks = |(i, out): (usize, &mut [f32])| {
        for row in (0..rows).step_by(BLOCK) {
            let block = read(&x[row * stride + i * BLOCK..], stride);
            write(block, &mut out[row..], out_stride);
        }
    };
    let out = &mut out[..columns.next_multiple_of(BLOCK) * out_stride];
    if shared {
        out.par_chunks_mut(BLOCK * out_stride).enumerate().for_each(column_of_blocks);
    } else {
        out.chunks_mut(BLOCK * out_stride).enumerate().for_each(column_of_blocks);
    }
}

/// Copies what lies above the diagonal of a square matrix to below it, in squares of [`LANES`]
/// rows; those on the diagonal are left as they are.
pub(crate) fn mirror(x: &mut [f32], stride: usize, rows: usize) {
    for row in (0..rows).step_by(BLOCK) {
        let diagonal = row / LANES * LANES;
        for column in (0..diagonal).step_by(BLOCK) {
            let block = read(&x[column * stride + row..], stride);
            write(block, &mut x[row * stride + column..], stride);
        }
    }
}

type Block = [[f32; BLOCK]; BLOCK];

/// The transpose of a block of `x`.
fn read(x: &[f32], stride: usize) -> Block {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the feature is present.
        return unsafe { avx::read(x, stride) };
    }
    let row = |i: usize| &x[i * stride..i * stride + BLOCK];
    let rows: [&[f32]; BLOCK] = std::array::from_fn(row);
    std::array::from_fn(|column| std::array::from_fn(|i| rows[i][column]))
}

fn write(block: Block, out: &mut [f32], stride: usize) {
    for (i, row) in block.iter().enumerate() {
        out[i * stride..i * stride + BLOCK].copy_from_slice(row);
    }
}

/// Shuffles in registers: about 6 % off a step of small matrices.
#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps,
        _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };

    use super::{BLOCK, Block};

    #[target_feature(enable = "avx")]
    pub(super) fn read(x: &[f32], stride: usize) -> Block {
        let mut rows = [_mm256_setzero_ps(); BLOCK];
        for (i, row) in rows.iter_mut().enumerate() {
            let values = &x[i * stride..i * stride + BLOCK];
            // SAFETY: the slice holds eight values.
            *row = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        }
        // Pairs of rows, then fours, within each half of the vectors.
        let mut pairs = rows;
        for i in (0..BLOCK).step_by(2) {
            pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
        let mut fours = pairs;
        for i in [0, 4] {
            for half in 0..2 {
                let (low, high) = (pairs[i + half], pairs[i + half + 2]);
                fours[i + 2 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(low, high);
                fours[i + 2 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(low, high);
            }
        }
        let mut block = [[0.0; BLOCK]; BLOCK];
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            // SAFETY: each row of the block holds eight values.
            unsafe {
                _mm256_storeu_ps(block[i].as_mut_ptr(), low);
                _mm256_storeu_ps(block[i + 4].as_mut_ptr(), high);
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::{mirror, transpose};

    #[test]
    fn transpose_swaps_rows_and_columns_of_whole_blocks() {
        let x: Vec<f32> = (0..16 * 26).map(|i| i as f32).collect();
        let mut out = vec![-1.0; 24 * 17];
        transpose((&x, 26), (&mut out, 17), [10, 19], false);
        for (row, column) in [(0, 0), (9, 18), (15, 23), (7, 8), (3, 5)] {
            assert_eq!(out[column * 17 + row], x[row * 26 + column]);
        }
        assert_eq!(out[16], -1.0, "beyond the blocks nothing is written");
    }

    #[test]
    fn mirror_fills_squares_below_the_diagonal() {
        let mut x: Vec<f32> = (0..24 * 24).map(|i| i as f32).collect();
        mirror(&mut x, 24, 20);
        assert_eq!(x[17 * 24 + 3], (3 * 24 + 17) as f32);
        assert_eq!(x[5 * 24 + 3], (5 * 24 + 3) as f32, "a square on the diagonal stays");
    }
}
