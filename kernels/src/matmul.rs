//! Products of matrices in slices, for use inside the tasks of CPU kernels.

use gemm::Parallelism;

/// A matrix in a slice, or the transpose of one.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `data` row by row.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} by {cols}");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// The transpose, without a copy.
    pub(crate) fn t(self) -> Self {
        let (rows, cols) = (self.cols, self.rows);
        let (row_stride, col_stride) = (self.col_stride, self.row_stride);
        Self { data: self.data, rows, cols, row_stride, col_stride }
    }
}

/// `out = scale out + factor a b`, with `out` row by row; with `scale` 0 `out` is not read.
pub(crate) fn multiply(
    out: &mut [f32],
    scale: f32,
    factor: f32,
    a: Matrix,
    b: Matrix,
    parallelism: Parallelism,
) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert_eq!(k, b.rows, "inner dimensions of a product");
    assert_eq!(out.len(), m * n, "a product of {m} by {n}");
    // SAFETY: `out` is an exclusive row-major slice of m n elements (asserted above), and each
    // operand spans rows x cols elements of its slice (`Matrix::new` checks the length, `t` swaps
    // dimensions and strides together), so every access is in bounds; a slice fits in isize.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            scale != 0.0,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            scale,
            factor,
            false,
            false,
            false,
            parallelism,
        );
    }
}
