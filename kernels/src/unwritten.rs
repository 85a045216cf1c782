//! A buffer that is written part by part in parallel, instead of being zeroed first.
//!
//! Zeroing the gradients of many experts would cost as much as a third of computing them.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::matrix::{Matrix, write_product};
use crate::row_products::write_outer;

/// The buffer; its values may be read once every [`Part`] is written.
pub(crate) struct Unwritten {
    values: Vec<f32>,
    len: usize,
    written: AtomicUsize,
}

impl Unwritten {
    pub(crate) fn new(len: usize) -> Self {
        Self { values: Vec::with_capacity(len), len, written: AtomicUsize::new(0) }
    }

    /// All of the buffer.
    pub(crate) fn whole(&mut self) -> Part<'_> {
        *self.written.get_mut() = 0;
        Part { values: &mut self.values.spare_capacity_mut()[..self.len], written: &self.written }
    }

    /// The values.
    ///
    /// # Panics
    /// If a part was not written.
    pub(crate) fn finish(mut self) -> Vec<f32> {
        assert_eq!(*self.written.get_mut(), self.len, "values written of a buffer");
        // SAFETY: parts are disjoint, each counts its values once it has written all of them, and
        // as many were counted as there are.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}

/// Values that are written together, once.
pub(crate) struct Part<'a> {
    values: &'a mut [MaybeUninit<f32>],
    written: &'a AtomicUsize,
}

impl<'a> Part<'a> {
    /// The first `len` values, and what is left.
    pub(crate) fn split_at(self, len: usize) -> (Self, Self) {
        let Self { values, written } = self;
        let (first, rest) = values.split_at_mut(len);
        (Self { values: first, written }, Self { values: rest, written })
    }

    /// Parts of `len` values.
    ///
    /// # Panics
    /// Unless they cover the part.
    pub(crate) fn chunks(self, len: usize) -> impl Iterator<Item = Self> {
        let (Self { values, written }, len) = (self, len.max(1));
        assert!(values.len().is_multiple_of(len), "whole chunks");
        values.chunks_mut(len).map(move |values| Self { values, written })
    }

    /// Writes `a b`.
    pub(crate) fn product(self, a: Matrix, b: Matrix) -> &'a mut [f32] {
        write_product(self.values, a, b);
        self.counted()
    }

    /// Writes `x^T y`, a sum over few rows; see [`fits_outer`](crate::row_products::fits_outer).
    pub(crate) fn outer(self, x: &[f32], y: &[f32], sizes: [usize; 3]) -> &'a mut [f32] {
        write_outer(self.values, x, y, sizes);
        self.counted()
    }

    /// Writes zeros.
    pub(crate) fn zeros(self) -> &'a mut [f32] {
        self.values.fill(MaybeUninit::new(0.0));
        self.counted()
    }

    /// Writes `from`.
    pub(crate) fn copy(self, from: &[f32]) -> &'a mut [f32] {
        self.values.write_copy_of_slice(from);
        self.counted()
    }

    fn counted(self) -> &'a mut [f32] {
        self.written.fetch_add(self.values.len(), Ordering::Relaxed);
        // SAFETY: only called by functions that have just written every value.
        unsafe { self.values.assume_init_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_part_by_part_is_read_as_a_whole() {
        let mut buffer = Unwritten::new(7);
        let (first, rest) = buffer.whole().split_at(4);
        first.product(Matrix::new(&[1.0, 2.0], 2, 1), Matrix::new(&[3.0, 5.0], 1, 2))[0] += 1.0;
        let mut rest = rest.chunks(1);
        rest.next().expect("a part").zeros();
        rest.next().expect("a part").copy(&[8.0]);
        rest.next().expect("a part").copy(&[9.0]);
        drop(rest);
        assert_eq!(buffer.finish(), [4.0, 5.0, 6.0, 10.0, 0.0, 8.0, 9.0]);
    }

    #[test]
    #[should_panic(expected = "values written of a buffer")]
    fn a_part_left_out_is_found() {
        let mut buffer = Unwritten::new(3);
        buffer.whole().split_at(2).0.zeros();
        buffer.finish();
    }
}
