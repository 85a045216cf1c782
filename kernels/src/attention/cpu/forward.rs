//! Weighted sums of values, block by block.

use rayon::prelude::*;

use super::heads::Heads;
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::{Loop, MulAdd, sum, vectorised};

/// `P v` [s * group, a] and one over the sum of weights [s * group] of one task.
pub(super) struct Attended {
    pub(super) y: Vec<f32>,
    pub(super) inverse_sum: Vec<f32>,
}

pub(super) fn attend(heads: &Heads<'_>) -> Attended {
    let (geometry, group) = (heads.call.geometry, heads.group.len());
    let rows = geometry.s * group;
    let mut attended = Attended { y: vec![0.0; rows * geometry.a], inverse_sum: vec![0.0; rows] };
    let block = heads.query_block();
    let blocks = attended
        .y
        .par_chunks_mut(block * group * geometry.a)
        .zip(attended.inverse_sum.par_chunks_mut(block * group));
    blocks.enumerate().for_each(|(i, (y, inverse_sum))| {
        attend_block(heads, i * block, y, inverse_sum);
    });
    attended
}

fn attend_block(heads: &Heads<'_>, start: usize, y: &mut [f32], inverse_sum: &mut [f32]) {
    let (a, rows) = (heads.call.geometry.a, inverse_sum.len());
    let queries = start..start + rows / heads.group.len();
    let placed = heads.placed_queries(queries.clone());
    let mut scores = heads.scores(queries.clone());
    for keys in heads.key_blocks(queries.clone()) {
        let width = keys.len();
        let weights = &mut scores[..rows * width];
        let placed = Matrix::new(&placed, rows, a);
        heads.weigh(weights, placed, queries.clone(), keys.clone());
        vectorised(AddRows { sums: inverse_sum, rows: weights });
        multiply(y, Factors::ADD, Matrix::new(weights, rows, width), heads.values(keys));
    }
    for (inverse, y) in inverse_sum.iter_mut().zip(y.chunks_exact_mut(a)) {
        *inverse = inverse.recip();
        for y in y {
            *y *= *inverse;
        }
    }
}

/// Adds to each sum those of its row.
struct AddRows<'a> {
    sums: &'a mut [f32],
    rows: &'a [f32],
}

impl Loop for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let width = self.rows.len() / self.sums.len();
        for (total, row) in self.sums.iter_mut().zip(self.rows.chunks_exact(width)) {
            *total += sum(row);
        }
    }
}
