//! Small matrix products on slices, one thread each.

use gemm::{Parallelism, gemm};

/// A matrix that lies in a slice with a distance between rows.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `cols` values whose starts are `stride` apart.
    pub(super) fn new(values: &'a [f32], [rows, cols]: [usize; 2], stride: usize) -> Self {
        assert!(rows > 0 && cols > 0 && stride >= cols, "a matrix with elements");
        assert!(values.len() >= (rows - 1) * stride + cols, "a slice as long as its matrix");
        Self { values, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// Rows and columns exchanged, without a copy.
    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// `out = scale * lhs rhs`, or added to `out` if `accumulate`; `out` holds row after row.
pub(super) fn product(
    out: &mut [f32],
    accumulate: bool,
    scale: f32,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
) {
    assert_eq!(lhs.cols, rhs.rows, "inner dimensions of a product");
    assert_eq!(out.len(), lhs.rows * rhs.cols, "the size of a product");
    // SAFETY: every index that the dimensions and strides reach lies inside its slice: for the
    // operands by the asserts in `Matrix::new`, for `out` by the assert above; `out` is borrowed
    // mutably and so overlaps neither operand.
    unsafe {
        gemm(
            lhs.rows,
            rhs.cols,
            lhs.cols,
            out.as_mut_ptr(),
            1,
            rhs.cols as isize,
            accumulate,
            lhs.values.as_ptr(),
            lhs.col_stride as isize,
            lhs.row_stride as isize,
            rhs.values.as_ptr(),
            rhs.col_stride as isize,
            rhs.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
