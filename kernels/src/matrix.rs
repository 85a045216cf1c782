//! Products of f32 matrices in slices, on the calling thread.

use gemm::Parallelism;

/// A matrix that reads a slice by strides; every element lies inside the slice.
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
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} by {columns} in its slice");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Rows whose starts are `stride` apart, from the start of `values`.
    pub(crate) fn strided(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert_fits(values, rows, columns, stride);
        Self { values, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// The columns from `first` on, `count` of them or what is left.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        assert!(first < self.columns, "column {first} of {}", self.columns);
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
}

/// Panics unless a slice holds all of a matrix.
fn assert_fits(values: &[f32], rows: usize, columns: usize, stride: usize) {
    let needed = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride + columns };
    let found = values.len();
    assert!(found >= needed, "a matrix that ends at {needed} in a slice of {found}");
    assert!(columns <= stride, "rows of {columns} that start {stride} apart");
}

/// The factors of `out = product a b + old out`; with `old` 0 `out` is not read.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    pub(crate) product: f32,
    pub(crate) old: f32,
}

impl Factors {
    /// The product takes the place of what `out` holds.
    pub(crate) const REPLACE: Self = Self { product: 1.0, old: 0.0 };
    /// The product is added to what `out` holds.
    pub(crate) const ADD: Self = Self { product: 1.0, old: 1.0 };

    /// The product counts `product` times.
    pub(crate) fn scaled(self, product: f32) -> Self {
        Self { product, ..self }
    }
}

/// `out = product a b + old out`, with all of `out` row after row.
pub(crate) fn multiply(out: &mut [f32], factors: Factors, a: Matrix, b: Matrix) {
    assert_eq!(out.len(), a.rows * b.columns, "the output of a product");
    multiply_strided(out, b.columns, factors, a, b);
}

/// [`multiply`] with the starts of the rows of `out` `stride` apart; what lies between stays.
pub(crate) fn multiply_strided(
    out: &mut [f32],
    stride: usize,
    factors: Factors,
    a: Matrix,
    b: Matrix,
) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(b.rows, k, "the inner dimension of a product");
    assert_fits(out, m, n, stride);
    // SAFETY: every element of `a` and `b` lies inside its slice (the constructors of `Matrix`
    // check it, `columns` and `transposed` keep it), every element of the output inside `out`
    // (checked above), and `out` is borrowed mutably, so it overlaps neither input.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            stride as isize,
            factors.old != 0.0,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            factors.old,
            factors.product,
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
        multiply(&mut out, Factors::ADD, a, b);
        assert_eq!(out, [33.0, 65.0, 97.0, 66.0, 131.0, 196.0]);
        multiply(&mut out, Factors::REPLACE.scaled(0.5), a, b);
        assert_eq!(out, [16.0, 32.0, 48.0, 32.5, 65.0, 97.5]);
    }

    #[test]
    fn a_strided_product_leaves_what_lies_between_its_rows() {
        let a = Matrix::strided(&[1.0, 2.0, 9.0, 3.0, 4.0], 2, 2, 3);
        let mut out = [1.0, 7.0, 1.0];
        let factors = Factors { product: 2.0, old: 3.0 };
        multiply_strided(&mut out, 2, factors, a, Matrix::new(&[1.0, 10.0], 2, 1));
        // 2 (1 + 20) + 3 and 2 (3 + 40) + 3
        assert_eq!(out, [45.0, 7.0, 89.0]);
    }

    #[test]
    #[should_panic(expected = "the inner dimension of a product")]
    fn matrices_that_do_not_fit_are_refused() {
        let a = Matrix::new(&[1.0, 2.0], 1, 2);
        multiply(&mut [0.0; 1], Factors::REPLACE, a, Matrix::new(&[1.0], 1, 1));
    }

    #[test]
    #[should_panic(expected = "a matrix that ends at 5 in a slice of 4")]
    fn a_matrix_longer_than_its_slice_is_refused() {
        Matrix::strided(&[0.0; 4], 2, 2, 3);
    }
}
