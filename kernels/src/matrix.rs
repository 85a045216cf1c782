//! Products of f32 matrices in slices, on the calling thread.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

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

/// A matrix that is written, row after row; every element lies inside the slice it was made of, and
/// no other matrix has it.
pub(crate) struct MatrixMut<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    values: PhantomData<&'a mut [f32]>,
}

// SAFETY: the elements are reached through this value alone, as those of a mutable slice are.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// All of `values`, row after row.
    pub(crate) fn new(values: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} by {columns} in its slice");
        Self::strided(values, rows, columns, columns)
    }

    /// Rows whose starts are `stride` apart, from the start of `values`.
    pub(crate) fn strided(
        values: &'a mut [f32],
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Self {
        assert_fits(values, rows, columns, stride);
        Self { start: values.as_mut_ptr(), rows, columns, stride, values: PhantomData }
    }

    /// Blocks of `count` columns, the last with what is left.
    pub(crate) fn column_blocks(self, count: usize) -> impl Iterator<Item = Self> {
        let Self { start, rows, columns, stride, values } = self;
        (0..columns).step_by(count).map(move |first| Self {
            start: start.wrapping_add(first),
            rows,
            columns: count.min(columns - first),
            stride,
            values,
        })
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
    let mut out = MatrixMut::strided(out, a.rows, b.columns, stride);
    multiply_into(&mut out, factors, a, b);
}

/// [`multiply`] into a matrix.
pub(crate) fn multiply_into(out: &mut MatrixMut, factors: Factors, a: Matrix, b: Matrix) {
    assert_eq!([out.rows, out.columns], [a.rows, b.columns], "the output of a product");
    // SAFETY: `out` holds its elements alone and they are floats.
    unsafe { product(out.start, out.stride, factors, a, b) };
}

/// Writes the product to all of `out`, whatever is there.
pub(crate) fn write_product(out: &mut [MaybeUninit<f32>], a: Matrix, b: Matrix) {
    assert_eq!(out.len(), a.rows * b.columns, "the output of a product");
    // SAFETY: `out` is as long as the product, and with these factors it is not read.
    unsafe { product(out.as_mut_ptr().cast(), b.columns, Factors::REPLACE, a, b) };
}

/// # Safety
/// Rows of `b.columns` floats whose starts are `stride` apart, `a.rows` of them from `out`, may be
/// written and, unless `factors.old` is 0, read.
unsafe fn product(out: *mut f32, stride: usize, factors: Factors, a: Matrix, b: Matrix) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(b.rows, k, "the inner dimension of a product");
    // SAFETY: every element of `a` and `b` lies inside its slice (the constructors of `Matrix`
    // check it, `columns` and `transposed` keep it), and the caller vouches for the output. A
    // mutable borrow overlaps neither input.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out,
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
    fn blocks_of_columns_are_written_alone_and_cover_the_matrix() {
        let mut out = [1.0; 10];
        let blocks = MatrixMut::new(&mut out, 2, 5).column_blocks(2).enumerate();
        for (i, mut block) in blocks {
            let b = [1.0, 2.0];
            let b = Matrix::new(&b[..block.columns], 1, block.columns);
            let a = [i as f32, 10.0];
            multiply_into(&mut block, Factors::ADD, Matrix::new(&a, 2, 1), b);
        }
        assert_eq!(out, [1.0, 1.0, 2.0, 3.0, 3.0, 11.0, 21.0, 11.0, 21.0, 11.0]);
    }

    #[test]
    fn a_product_of_nothing_is_written_as_zero() {
        let mut out = [MaybeUninit::new(7.0); 4];
        write_product(&mut out, Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 2));
        // SAFETY: it was written above.
        assert_eq!(out.map(|value| unsafe { value.assume_init() }), [0.0; 4]);
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
