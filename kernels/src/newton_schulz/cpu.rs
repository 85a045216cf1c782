use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::product::{LANES, Product, ROWS};
use super::transpose::{mirror, transpose};
use super::{COEFFICIENTS, NORM_EPS, NewtonSchulzKernel, Precision};
use crate::bf16::{nearest as bf16, round};
use crate::flex::{dims, floats_mut, unshared};
use crate::hyperball::sum_squares;

/// A matrix whose shorter side is longer than this shares its products among threads, unless there
/// are [`MANY`]; else it is a task of its own.
const SHARED_FROM: usize = 128;

/// So many matrices keep all threads busy without sharing.
const MANY: usize = 64;

impl NewtonSchulzKernel for Flex {
    fn forward(u: FlexTensor, precision: Precision) -> FlexTensor {
        let [_, p, q] = dims(&u);
        let mut u = unshared(u);
        let matrices = floats_mut(&mut u).par_chunks_mut((p * q).max(1));
        for_each_matrix(matrices, [p, q], precision, |work, u| work.orthogonalise(u));
        u
    }
}

/// Runs `body` on each matrix of a stack: in parallel, or one after the other where the matrices
/// are so large that the body shares its own work among threads.
pub(crate) fn for_each_matrix<I: IndexedParallelIterator>(
    matrices: I,
    [p, q]: [usize; 2],
    precision: Precision,
    body: impl Fn(&mut Workspace, I::Item) + Sync + Send,
) {
    let shared = p.min(q) > SHARED_FROM && matrices.len() < MANY;
    let matrices = matrices.with_min_len(if shared { usize::MAX } else { 1 });
    matrices.for_each_init(|| Workspace::new([p, q], precision, shared), body);
}

/// The buffers of one matrix's steps, used again for the next matrix.
pub(crate) struct Workspace {
    /// A copy of the update for callers that must not write to their own.
    pub(crate) update: Vec<f32>,
    precision: Precision,
    /// Whether threads share the products.
    shared: bool,
    /// The matrix is taller than wide, so its transpose is iterated.
    tall: bool,
    short: usize,
    long: usize,
    /// Strides of buffers whose rows are as long as the short and the long side.
    short_stride: usize,
    long_stride: usize,
    x: Vec<f32>,
    next: Vec<f32>,
    x_transposed: Vec<f32>,
    gram: Vec<f32>,
    polynomial: Vec<f32>,
}

impl Workspace {
    fn new([p, q]: [usize; 2], precision: Precision, shared: bool) -> Self {
        let (short, long) = (p.min(q), p.max(q));
        let (short_stride, long_stride) = (stride(short), stride(long));
        let rows = short.next_multiple_of(ROWS).max(short.next_multiple_of(8));
        let columns = long.next_multiple_of(8);
        Self {
            update: vec![0.0; p * q],
            precision,
            shared,
            tall: p > q,
            short,
            long,
            short_stride,
            long_stride,
            x: vec![0.0; rows * long_stride],
            next: vec![0.0; rows * long_stride],
            x_transposed: vec![0.0; columns * short_stride],
            gram: vec![0.0; rows * short_stride],
            polynomial: vec![0.0; rows * short_stride],
        }
    }

    /// Replaces a matrix by what [`newton_schulz`](super::newton_schulz()) makes of it.
    pub(crate) fn orthogonalise(&mut self, u: &mut [f32]) {
        self.load(u);
        for (a, b, c) in COEFFICIENTS {
            self.step(a as f32, b as f32, c as f32);
        }
        self.store(u);
    }

    fn load(&mut self, u: &[f32]) {
        let shared = self.shared;
        let inverse = ((sum_squares(u).sqrt() + NORM_EPS).recip()) as f32;
        let (buffer, stride, len) = if self.tall {
            (&mut self.x_transposed, self.short_stride, self.short)
        } else {
            (&mut self.x, self.long_stride, self.long)
        };
        // An earlier matrix that was not finite may have left its mark in the padding.
        buffer.fill(0.0);
        for (x, row) in buffer.chunks_mut(stride).zip(u.chunks(len)) {
            for (x, value) in x.iter_mut().zip(row) {
                *x = value * inverse;
            }
        }
        if self.tall {
            transpose(
                (&self.x_transposed, self.short_stride),
                (&mut self.x, self.long_stride),
                [self.long, self.short],
                shared,
            );
        }
        if self.precision == Precision::Bf16 {
            round(&mut self.x);
        }
    }

    fn store(&mut self, u: &mut [f32]) {
        let (buffer, stride, len) = if self.tall {
            self.transpose_x();
            (&self.x_transposed, self.short_stride, self.short)
        } else {
            (&self.x, self.long_stride, self.long)
        };
        for (x, row) in buffer.chunks(stride).zip(u.chunks_mut(len)) {
            row.copy_from_slice(&x[..len]);
        }
    }

    fn transpose_x(&mut self) {
        let shared = self.shared;
        transpose(
            (&self.x, self.long_stride),
            (&mut self.x_transposed, self.short_stride),
            [self.short, self.long],
            shared,
        );
    }

    /// `X <- a X + (b A + c A^2) X` with `A = X X^T`.
    fn step(&mut self, a: f32, b: f32, c: f32) {
        self.transpose_x();
        let (short, shared) = (self.short, self.shared);
        let rows = short.next_multiple_of(ROWS);
        let square = rows * self.short_stride;
        let to_short = Product {
            lhs: &self.x,
            lhs_stride: self.long_stride,
            rhs: &self.x_transposed,
            rhs_stride: self.short_stride,
            depth: self.long,
            cols: short.next_multiple_of(LANES),
            out_stride: self.short_stride,
            alpha: 1.0,
            add: None,
            symmetric: true,
        };
        to_short.compute(&mut self.gram[..square], shared);
        mirror(&mut self.gram, self.short_stride, short);
        let gram = &mut self.gram[..];
        let (polynomial, next) = (&mut self.polynomial, &mut self.next);
        if self.precision == Precision::Bf16 {
            round(gram);
        }
        let squared = Product {
            lhs: gram,
            lhs_stride: self.short_stride,
            rhs: gram,
            depth: short,
            ..to_short
        };
        let onto_x = |polynomial| Product {
            lhs: polynomial,
            lhs_stride: self.short_stride,
            rhs: &self.x,
            rhs_stride: self.long_stride,
            depth: short,
            cols: self.long.next_multiple_of(LANES),
            out_stride: self.long_stride,
            alpha: 1.0,
            add: None,
            symmetric: false,
        };
        match self.precision {
            Precision::F32 => {
                let squared = Product { alpha: c, add: Some((b, gram)), ..squared };
                squared.compute(&mut polynomial[..square], shared);
                mirror(polynomial, self.short_stride, short);
                let onto_x = Product { add: Some((a, &self.x)), ..onto_x(polynomial) };
                onto_x.compute(&mut next[..rows * self.long_stride], shared);
            }
            Precision::Bf16 => {
                squared.compute(&mut polynomial[..square], shared);
                mirror(polynomial, self.short_stride, short);
                rounded_sum(polynomial, c, gram, b);
                onto_x(polynomial).compute(&mut next[..rows * self.long_stride], shared);
                rounded_sum(next, 1.0, &self.x, a);
            }
        }
        std::mem::swap(&mut self.x, &mut self.next);
    }
}

/// A row length of whole cache lines, an odd number of them: then the rows of a column panel fall
/// into different sets of the first cache.
fn stride(len: usize) -> usize {
    (len.div_ceil(LANES) | 1) * LANES
}

/// `out = alpha out + beta add` as bf16 arithmetic does it, every factor and term rounded.
fn rounded_sum(out: &mut [f32], alpha: f32, add: &[f32], beta: f32) {
    let (alpha, beta) = (bf16(alpha), bf16(beta));
    for (out, add) in out.iter_mut().zip(add) {
        *out = bf16(bf16(alpha * bf16(*out)) + bf16(beta * add));
    }
}
