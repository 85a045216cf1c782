//! Matrix products of the Newton-Schulz steps.
//!
//! Row strides are padded so that no product has a ragged edge: rows to a multiple of [`ROWS`],
//! columns to whole vectors. The padding is zero and the steps keep it so.

use rayon::prelude::*;

use crate::matrix::{Factors, Matrix, multiply_strided};
#[cfg(target_arch = "x86_64")]
use crate::simd::has_avx512;

/// Rows of a register tile, or half of them; every left operand has a multiple of them.
pub(crate) const ROWS: usize = 6;
/// Columns of a register tile, one cache line of f32.
pub(crate) const LANES: usize = 16;
/// Rows that are computed together, by a task of their own when a product is shared among threads;
/// a multiple of twice [`ROWS`].
const TASK_ROWS: usize = 48;

/// `out = alpha lhs rhs + beta add`, where `add` lies like `out`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// Rows of `lhs`, one after the other with `lhs_stride`.
    pub(crate) lhs: &'a [f32],
    /// Distance of two rows of `lhs`.
    pub(crate) lhs_stride: usize,
    /// The right operand, `depth` rows.
    pub(crate) rhs: &'a [f32],
    /// Distance of two rows of `rhs`.
    pub(crate) rhs_stride: usize,
    /// Terms of each sum.
    pub(crate) depth: usize,
    /// Columns of `out` and `rhs`, a multiple of [`LANES`].
    pub(crate) cols: usize,
    /// Distance of two rows of `out` and `add`.
    pub(crate) out_stride: usize,
    /// The factor of the product.
    pub(crate) alpha: f32,
    /// What is added, with its factor.
    pub(crate) add: Option<(f32, &'a [f32])>,
    /// The result is symmetric: squares of [`LANES`] rows below the diagonal may be left out, for
    /// [`mirror`](super::transpose::mirror) to fill.
    pub(crate) symmetric: bool,
}

impl Product<'_> {
    /// Computes all rows of `out`; if `shared`, blocks of rows in parallel.
    pub(crate) fn compute(self, out: &mut [f32], shared: bool) {
        let step = TASK_ROWS * self.out_stride;
        let block = |(i, out): (usize, &mut [f32])| {
            let lhs = &self.lhs[i * TASK_ROWS * self.lhs_stride..];
            let add = self.add.map(|(beta, add)| (beta, &add[i * step..]));
            Product { lhs, add, ..self }.rows(out, i * TASK_ROWS);
        };
        if shared {
            out.par_chunks_mut(step).enumerate().for_each(block);
        } else {
            out.chunks_mut(step).enumerate().for_each(block);
        }
    }

    /// Computes the rows of `out`, of which the first is row `first` of the whole result.
    fn rows(self, out: &mut [f32], first: usize) {
        self.check(out);
        #[cfg(target_arch = "x86_64")]
        {
            if self.depth <= avx512::MAX_DEPTH && has_avx512() {
                // SAFETY: the features are present and `check` has bounded every access.
                return unsafe { avx512::rows(&self, out, first) };
            }
            if self.depth <= fma::MAX_DEPTH
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
            {
                // SAFETY: the features are present and `check` has bounded every access.
                return unsafe { fma::rows(&self, out, first) };
            }
        }
        self.rows_by_gemm(out, first);
    }

    /// Bounds every access of a product with these dimensions.
    fn check(&self, out: &[f32]) {
        let rows = out.len() / self.out_stride;
        assert!(rows * self.out_stride == out.len() && rows.is_multiple_of(ROWS));
        assert!(self.cols.is_multiple_of(LANES) && self.cols <= self.out_stride);
        assert!(self.cols <= self.rhs_stride && self.depth <= self.lhs_stride);
        assert!(self.rhs.len() >= self.depth * self.rhs_stride);
        assert!(self.lhs.len() >= rows * self.lhs_stride);
        assert!(self.add.is_none_or(|(_, add)| add.len() >= out.len()));
    }

    fn rows_by_gemm(self, out: &mut [f32], first: usize) {
        let rows = out.len() / self.out_stride;
        let left_out = if self.symmetric { first / LANES * LANES } else { 0 };
        let mut factors = Factors::REPLACE.scaled(self.alpha);
        if let Some((beta, add)) = self.add {
            out.copy_from_slice(&add[..out.len()]);
            factors.old = beta;
        }
        let cols = self.cols - left_out;
        let lhs = Matrix::strided(self.lhs, rows, self.depth, self.lhs_stride);
        let rhs = Matrix::strided(&self.rhs[left_out..], self.depth, cols, self.rhs_stride);
        multiply_strided(&mut out[left_out..], self.out_stride, factors, lhs, rhs);
    }
}

/// Register tiles of 12 rows by 16 columns with AVX-512.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_storeu_ps,
    };

    use super::{LANES, Product, ROWS};

    /// The longest sum for which a column panel of the right operand stays in the first cache.
    pub(super) const MAX_DEPTH: usize = 512;

    /// # Safety
    /// `Product::check(out)` has passed.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn rows(p: &Product, out: &mut [f32], first: usize) {
        let rows = out.len() / p.out_stride;
        for col in (0..p.cols).step_by(LANES) {
            let below = if p.symmetric { (col + LANES).saturating_sub(first) } else { rows };
            let end = rows.min(below);
            for row in (0..end).step_by(2 * ROWS) {
                let at = row * p.out_stride + col;
                // SAFETY: a tile at `row`, `col` lies inside every operand by `check`; there are
                // at least `ROWS` rows from `row` on, since both are multiples of it.
                unsafe {
                    let lhs = p.lhs.as_ptr().add(row * p.lhs_stride);
                    let rhs = p.rhs.as_ptr().add(col);
                    let add = p.add.map(|(beta, add)| (beta, add.as_ptr().add(at)));
                    let out = out.as_mut_ptr().add(at);
                    if row + 2 * ROWS <= rows {
                        tile::<{ 2 * ROWS }>(p, lhs, rhs, add, out);
                    } else {
                        tile::<ROWS>(p, lhs, rhs, add, out);
                    }
                }
            }
        }
    }

    /// # Safety
    /// The pointers address a tile of `HEIGHT` rows of operands for which `Product::check` has
    /// passed.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn tile<const HEIGHT: usize>(
        p: &Product,
        lhs: *const f32,
        mut rhs: *const f32,
        add: Option<(f32, *const f32)>,
        out: *mut f32,
    ) {
        let mut sums = [_mm512_setzero_ps(); HEIGHT];
        for k in 0..p.depth {
            // SAFETY: `k < depth`, and the caller vouches for the tile.
            unsafe {
                let right = _mm512_loadu_ps(rhs);
                for (row, sum) in sums.iter_mut().enumerate() {
                    let factor = _mm512_set1_ps(*lhs.add(row * p.lhs_stride + k));
                    *sum = _mm512_fmadd_ps(factor, right, *sum);
                }
                rhs = rhs.wrapping_add(p.rhs_stride);
            }
        }
        let alpha = _mm512_set1_ps(p.alpha);
        for (row, sum) in sums.into_iter().enumerate() {
            let at = row * p.out_stride;
            let mut value = _mm512_mul_ps(alpha, sum);
            // SAFETY: the caller vouches for the tile.
            unsafe {
                if let Some((beta, add)) = add {
                    let add = _mm512_loadu_ps(add.add(at));
                    value = _mm512_fmadd_ps(_mm512_set1_ps(beta), add, value);
                }
                _mm512_storeu_ps(out.add(at), value);
            }
        }
    }
}

/// Register tiles of 6 rows by 16 columns with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
mod fma {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_storeu_ps,
    };

    use super::{LANES, Product, ROWS};

    /// The longest sum for which a column panel of the right operand stays in the first cache;
    /// longer ones need the blocking of the `gemm` crate.
    pub(super) const MAX_DEPTH: usize = 256;

    /// # Safety
    /// `Product::check(out)` has passed.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn rows(p: &Product, out: &mut [f32], first: usize) {
        let rows = out.len() / p.out_stride;
        for col in (0..p.cols).step_by(LANES) {
            let below = if p.symmetric { (col + LANES).saturating_sub(first) } else { rows };
            for row in (0..rows.min(below)).step_by(ROWS) {
                let at = row * p.out_stride + col;
                // SAFETY: a tile at `row`, `col` lies inside every operand by `check`.
                unsafe {
                    let lhs = p.lhs.as_ptr().add(row * p.lhs_stride);
                    let rhs = p.rhs.as_ptr().add(col);
                    let add = p.add.map(|(beta, add)| (beta, add.as_ptr().add(at)));
                    tile(p, lhs, rhs, add, out.as_mut_ptr().add(at));
                }
            }
        }
    }

    /// # Safety
    /// The pointers address a tile of operands for which `Product::check` has passed.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn tile(
        p: &Product,
        lhs: *const f32,
        mut rhs: *const f32,
        add: Option<(f32, *const f32)>,
        out: *mut f32,
    ) {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for k in 0..p.depth {
            // SAFETY: `k < depth`, and the caller vouches for the tile.
            unsafe {
                let (left, right) = (_mm256_loadu_ps(rhs), _mm256_loadu_ps(rhs.add(8)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let factor = _mm256_broadcast_ss(&*lhs.add(row * p.lhs_stride + k));
                    sums[0] = _mm256_fmadd_ps(factor, left, sums[0]);
                    sums[1] = _mm256_fmadd_ps(factor, right, sums[1]);
                }
                rhs = rhs.wrapping_add(p.rhs_stride);
            }
        }
        let alpha = _mm256_set1_ps(p.alpha);
        for (row, sums) in sums.into_iter().enumerate() {
            for (half, sum) in sums.into_iter().enumerate() {
                let at = row * p.out_stride + half * 8;
                let mut value = _mm256_mul_ps(alpha, sum);
                // SAFETY: the caller vouches for the tile.
                unsafe {
                    if let Some((beta, add)) = add {
                        let add = _mm256_loadu_ps(add.add(at));
                        value = _mm256_fmadd_ps(_mm256_set1_ps(beta), add, value);
                    }
                    _mm256_storeu_ps(out.add(at), value);
                }
            }
        }
    }
}
