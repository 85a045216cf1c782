//! Buffers of rows of which every value is written once, blocks of rows in parallel.
//!
//! Zeroing a buffer before it is filled would cost a quarter of a large copy. Rows that are read
//! from all over another buffer are asked for some rows ahead, which no processor guesses.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::parallel::ROW_BLOCK;
use crate::simd::{Loop, MulAdd, dot, prefetch, vectorised};

/// Rows between asking for a row and copying it.
const COPY_AHEAD: usize = 8;

/// Rows between asking for the terms of a sum and adding them.
const SUM_AHEAD: usize = 2;

/// Values that are summed in registers.
const LANES: usize = 32;

/// A weight and the row it is multiplied with.
pub(crate) type Term<'a> = (f32, &'a [f32]);

/// `rows` rows of `dim` values, each a copy of what `source` gives for it, or zeros.
pub(crate) fn copies<'a>(
    rows: usize,
    dim: usize,
    source: impl Fn(usize) -> Option<&'a [f32]> + Sync,
) -> Vec<f32> {
    filled(&mut vec![(); rows], dim, |range, block, _| {
        for row in range {
            if row + COPY_AHEAD < rows {
                source(row + COPY_AHEAD).inspect(|ahead| prefetch(ahead));
            }
            match source(row) {
                Some(values) => block.copy(values),
                None => block.sum(&[]),
            }
        }
    })
}

/// `rows` rows of `dim` values, each the sum of the terms that `terms` appends for it, in their
/// order; mostly `most_terms` or fewer.
pub(crate) fn sums<'a>(
    rows: usize,
    dim: usize,
    most_terms: usize,
    terms: impl Fn(usize, &mut Vec<Term<'a>>) + Sync,
) -> Vec<f32> {
    filled(&mut vec![(); rows], dim, |range, block, _| {
        // Of the rows that were asked for; those of row i end at `ends[i]`.
        let mut asked = Vec::with_capacity(most_terms * range.len());
        let mut ends = Vec::with_capacity(range.len());
        let mut start = 0;
        for step in 0..range.len() + SUM_AHEAD {
            if step < range.len() {
                let first = asked.len();
                terms(range.start + step, &mut asked);
                asked[first..].iter().for_each(|(_, row)| prefetch(row));
                ends.push(asked.len());
            }
            if let Some(row) = step.checked_sub(SUM_AHEAD) {
                block.sum(&asked[start..ends[row]]);
                start = ends[row];
            }
        }
    })
}

/// Rows of `dim` values, each a factor times a row, and for each row the product of that row with
/// another: what `source` gives for it, or zeros.
pub(crate) fn scaled<'a>(
    rows: usize,
    dim: usize,
    source: impl Fn(usize) -> Option<Scaled<'a>> + Sync,
) -> (Vec<f32>, Vec<f32>) {
    let mut products = vec![0.0; rows];
    let out = filled(&mut products, dim, |range, block, products| {
        for (row, product) in range.zip(products) {
            match source(row) {
                Some(scaled) => *product = block.scale(scaled),
                None => block.sum(&[]),
            }
        }
    });
    (out, products)
}

/// A row that becomes `factor * row`, and what it is multiplied with.
pub(crate) struct Scaled<'a> {
    pub(crate) factor: f32,
    pub(crate) row: &'a [f32],
    pub(crate) other: &'a [f32],
}

/// Rows that are written one after the other.
struct Block<'b> {
    rest: &'b mut [MaybeUninit<f32>],
    dim: usize,
}

impl<'b> Block<'b> {
    /// The next row; whoever takes it writes all of it.
    fn next(&mut self) -> &'b mut [MaybeUninit<f32>] {
        self.rest.split_off_mut(..self.dim).expect("a row is left")
    }

    /// # Panics
    /// Unless `values` is as long as a row.
    fn copy(&mut self, values: &[f32]) {
        self.next().write_copy_of_slice(values);
    }

    /// # Panics
    /// Unless every term is as long as a row.
    fn sum(&mut self, terms: &[Term<'_>]) {
        assert!(terms.iter().all(|(_, row)| row.len() == self.dim), "terms as long as a row");
        vectorised(Sum { out: self.next(), terms });
    }

    /// # Panics
    /// Unless both are as long as a row.
    fn scale(&mut self, scaled: Scaled<'_>) -> f32 {
        let Scaled { row, other, .. } = scaled;
        assert!(row.len() == self.dim && other.len() == self.dim, "terms as long as a row");
        vectorised(Scale { out: self.next(), scaled })
    }
}

/// Writes every value of `out`.
struct Sum<'a> {
    out: &'a mut [MaybeUninit<f32>],
    terms: &'a [Term<'a>],
}

impl Loop for Sum<'_> {
    type Output = ();

    // Unfused, so that sums are those of plain tensor operations in the same order.
    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let (blocks, rest) = self.out.as_chunks_mut::<LANES>();
        for (i, out) in blocks.iter_mut().enumerate() {
            let mut sum = [0.0f32; LANES];
            for (weight, row) in self.terms {
                let row = &row.as_chunks::<LANES>().0[i];
                for (sum, value) in sum.iter_mut().zip(row) {
                    *sum += weight * value;
                }
            }
            out.write_copy_of_slice(&sum);
        }
        let first = blocks.len() * LANES;
        for (i, out) in rest.iter_mut().enumerate() {
            let mut sum = 0.0;
            for (weight, row) in self.terms {
                sum += weight * row[first + i];
            }
            out.write(sum);
        }
    }
}

/// Writes every value of `out` and returns the product, which is that of [`dot`].
struct Scale<'a> {
    out: &'a mut [MaybeUninit<f32>],
    scaled: Scaled<'a>,
}

impl Loop for Scale<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<M: MulAdd>(self) -> f32 {
        let Scaled { factor, row, other } = self.scaled;
        for (out, value) in self.out.iter_mut().zip(row) {
            out.write(factor * value);
        }
        dot(row, other)
    }
}

/// A row of `dim` values for each entry of `aside`; `fill` writes a range of both.
fn filled<T: Send>(
    aside: &mut [T],
    dim: usize,
    fill: impl Fn(Range<usize>, &mut Block<'_>, &mut [T]) + Sync,
) -> Vec<f32> {
    let len = aside.len() * dim;
    let mut out = Vec::with_capacity(len);
    if len == 0 {
        return out;
    }
    let blocks = out.spare_capacity_mut()[..len].par_chunks_mut(dim * ROW_BLOCK);
    blocks.zip(aside.par_chunks_mut(ROW_BLOCK)).enumerate().for_each(|(block, (rest, aside))| {
        let first = block * ROW_BLOCK;
        let range = first..first + aside.len();
        let mut block = Block { rest, dim };
        fill(range, &mut block, aside);
        assert!(block.rest.is_empty(), "every row is written");
    });
    // SAFETY: the blocks cover the first `len` values. A block hands each of its rows to `copy`,
    // `sum` or `scale`, which write all of it or panic, and was asserted to have none left.
    unsafe { out.set_len(len) };
    out
}
