//! Products of f32 matrices in slices, on the calling thread.

use gemm::Parallelism;

/// A matrix that reads a slice by strides.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// All of `values`, row after row.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix fills its slice");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The columns from `first` on, `count` of them or what is left.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        assert!(first < self.columns, "a column of the matrix");
        let values = self.values.get(first * self.column_stride..).unwrap_or(&[]);
        Self { values, columns: count.min(self.columns - first), ..self }
    }

    /// Rows become columns.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// Whether every element lies inside the slice.
    fn fits(&self) -> bool {
        self.is_empty()
            || (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride
                < self.values.len()
    }
}

/// What becomes of the values an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are overwritten.
    Replace,
    /// The product is added to them.
    Add,
}

/// `out = a b` or `out += a b`, with `out` row after row.
pub(crate) fn multiply(out: &mut [f32], mode: Mode, a: Matrix, b: Matrix) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(b.rows, k, "the inner dimension of a product");
    assert_eq!(out.len(), m * n, "the output of a product");
    assert!(a.fits() && b.fits(), "matrices inside their slices");
    let read = mode == Mode::Add;
    // SAFETY: `fits` and the length of `out` keep every access inside the three slices, and `out`
    // is borrowed mutably, so it overlaps neither input.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            read,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_with_columns_and_a_transpose_is_the_sum_written_out() {
        let a = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3).columns(1, 2);
        let b = Matrix::new(&[1.0, 10.0, 2.0, 20.0, 3.0, 30.0], 3, 2).transposed();
        let mut out = [1.0; 6];
        // [[2, 3], [5, 6]] [[1, 2, 3], [10, 20, 30]]
        multiply(&mut out, Mode::Add, a, b);
        assert_eq!(out, [33.0, 65.0, 97.0, 66.0, 131.0, 196.0]);
        multiply(&mut out, Mode::Replace, a, b);
        assert_eq!(out, [32.0, 64.0, 96.0, 65.0, 130.0, 195.0]);
    }

    #[test]
    #[should_panic(expected = "the inner dimension of a product")]
    fn matrices_that_do_not_fit_are_refused() {
        let a = Matrix::new(&[1.0, 2.0], 1, 2);
        multiply(&mut [0.0; 2], Mode::Replace, a, a);
    }
}
