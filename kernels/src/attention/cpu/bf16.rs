//! Attention with its products in bf16: every operand of a product is rounded, sums are f32, and
//! so are norms, rotation, softmax and the exclusive step. Nothing is kept for backward, which forms
//! the weights anew.

use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use half::bf16;
use rayon::prelude::*;

use super::rows::{Placement, exclude, exclude_backward};
use crate::attention::{AttentionInputs, AttentionOptions};
use crate::bf16::{nearest, round, store_all, widen};
use crate::flex::{contiguous, dims, half_tensor, halves, integers};
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::{dot, exp_in_place, sum};

/// Queries of a block.
const BLOCK: usize = 64;

pub(super) fn forward(inputs: AttentionInputs<Flex>, options: &AttentionOptions) -> FlexTensor {
    let call = Call::new(inputs, options);
    let Call { b, s, h, a, .. } = call;
    let tasks = (0..b * h).into_par_iter();
    let parts: Vec<Vec<f32>> =
        tasks.map(|task| Head::new(&call, task / h, task % h).out()).collect();
    let mut out = vec![bf16::ZERO; b * s * h * a];
    for (task, part) in parts.iter().enumerate() {
        call.spread(part, [task / h, task % h, h], &mut out);
    }
    half_tensor(out, [b, s, h, a])
}

pub(super) fn backward(
    inputs: AttentionInputs<Flex>,
    options: &AttentionOptions,
    grad: FlexTensor,
) -> [FlexTensor; 3] {
    let call = Call::new(inputs, options);
    let Call { b, s, h, j, a, .. } = call;
    let grad = widen(halves(&contiguous(grad)));
    let tasks = (0..b * h).into_par_iter();
    let parts: Vec<Gradients> =
        tasks.map(|task| Head::new(&call, task / h, task % h).gradients(&grad)).collect();
    let mut dq = vec![bf16::ZERO; b * s * h * a];
    let (mut dk, mut dv) = (vec![bf16::ZERO; b * s * j * a], vec![bf16::ZERO; b * s * j * a]);
    for (task, part) in parts.iter().enumerate() {
        call.spread(&part.dq, [task / h, task % h, h], &mut dq);
    }
    // The heads that share keys and values, added in order.
    for (row, parts) in parts.chunks(h).enumerate() {
        for own in 0..options.own_kv_heads {
            let (mut k, mut v) = (vec![0.0; s * a], vec![0.0; s * a]);
            let reads = |(head, _): &(usize, &Gradients)| options.own_head(*head, h, j) == own;
            for (_, part) in parts.iter().enumerate().filter(reads) {
                add(&mut k, &part.dk);
                add(&mut v, &part.dv);
            }
            call.spread(&k, [row, own, j], &mut dk);
            call.spread(&v, [row, own, j], &mut dv);
        }
    }
    let tensor = |values, heads| half_tensor(values, [b, s, heads, a]);
    [tensor(dq, h), tensor(dk, j), tensor(dv, j)]
}

fn add(sum: &mut [f32], part: &[f32]) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

/// The inputs in f32, all of them values of bf16.
struct Call<'a> {
    b: usize,
    s: usize,
    h: usize,
    j: usize,
    a: usize,
    options: &'a AttentionOptions,
    placement: Placement,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    segments: Vec<i32>,
}

impl<'a> Call<'a> {
    fn new(inputs: AttentionInputs<Flex>, options: &'a AttentionOptions) -> Self {
        let [b, s, h, a] = dims(&inputs.q);
        let [_, _, j, _] = dims(&inputs.k);
        let wide = |tensor: FlexTensor| widen(halves(&contiguous(tensor)));
        Self {
            b,
            s,
            h,
            j,
            a,
            options,
            placement: Placement::new(s, a, options),
            q: wide(inputs.q),
            k: wide(inputs.k),
            v: wide(inputs.v),
            segments: integers(inputs.segment_ids),
        }
    }

    /// Writes the rows [s, a] of one head into a tensor [b, s, heads, a].
    fn spread(&self, part: &[f32], [row, head, heads]: [usize; 3], out: &mut [bf16]) {
        for (t, part) in part.chunks_exact(self.a).enumerate() {
            store_all(part, &mut out[((row * self.s + t) * heads + head) * self.a..][..self.a]);
        }
    }
}

/// One query head of one row of the batch, with the keys and values that it reads.
struct Head<'a> {
    call: &'a Call<'a>,
    row: usize,
    head: usize,
    own: usize,
    /// Normalised, rotated and rounded, [s, a].
    keys: Vec<f32>,
    /// [s, a].
    values: Vec<f32>,
}

/// Gradients of one head, each [s, a].
struct Gradients {
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

/// What a block of queries finds.
struct Block {
    keys: Range<usize>,
    /// Normalised, rotated and rounded, [queries, a].
    queries: Vec<f32>,
    /// [queries, keys], not rounded.
    probabilities: Vec<f32>,
    /// The weighted values [queries, a].
    y: Vec<f32>,
}

impl<'a> Head<'a> {
    fn new(call: &'a Call<'a>, row: usize, head: usize) -> Self {
        let own = call.options.own_head(head, call.h, call.j);
        let mut this = Self { call, row, head, own, keys: Vec::new(), values: Vec::new() };
        let mut keys = vec![0.0; call.s * call.a];
        for (t, placed) in keys.chunks_exact_mut(call.a).enumerate() {
            call.placement.place(t, this.key(t), placed);
        }
        round(&mut keys);
        let values = (0..call.s).flat_map(|t| call.v[this.key_start(t)..][..call.a].to_vec());
        this.values = values.collect();
        this.keys = keys;
        this
    }

    fn key_start(&self, t: usize) -> usize {
        ((self.row * self.call.s + t) * self.call.j + self.own) * self.call.a
    }

    fn key(&self, t: usize) -> &'a [f32] {
        &self.call.k[self.key_start(t)..][..self.call.a]
    }

    /// Where position `t` lies in a tensor [b, s, h, a].
    fn at(&self, t: usize) -> Range<usize> {
        let Call { s, h, a, .. } = *self.call;
        let start = ((self.row * s + t) * h + self.head) * a;
        start..start + a
    }

    fn value(&self, t: usize) -> &[f32] {
        &self.values[t * self.call.a..][..self.call.a]
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let s = self.call.s;
        (0..s).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(s))
    }

    fn scale(&self) -> f32 {
        (self.call.options.qk_mult / (self.call.a as f64).sqrt()) as f32
    }

    /// The first key that position `t` may read by the window.
    fn first_key(&self, t: usize) -> usize {
        self.call.options.window.map_or(0, |window| (t + 1).saturating_sub(window))
    }

    fn allowed(&self, query: usize, key: usize) -> bool {
        let segments = &self.call.segments[self.row * self.call.s..][..self.call.s];
        key <= query && key >= self.first_key(query) && segments[key] == segments[query]
    }

    fn block(&self, queries: Range<usize>) -> Block {
        let (a, n) = (self.call.a, queries.len());
        let keys = self.first_key(queries.start)..queries.end;
        let mut placed = vec![0.0; n * a];
        for (t, placed) in queries.clone().zip(placed.chunks_exact_mut(a)) {
            self.call.placement.place(t, &self.call.q[self.at(t)], placed);
        }
        round(&mut placed);
        let mut weights = vec![0.0; n * keys.len()];
        let of_keys = Matrix::new(&self.keys[keys.start * a..keys.end * a], keys.len(), a);
        let scaled = Factors::REPLACE.scaled(self.scale());
        multiply(&mut weights, scaled, Matrix::new(&placed, n, a), of_keys.transposed());
        // Scores are bounded (see `AttentionOptions::qk_mult`), so no maximum is subtracted.
        exp_in_place(&mut weights);
        for (query, weights) in queries.clone().zip(weights.chunks_exact_mut(keys.len())) {
            for (key, weight) in keys.clone().zip(&mut *weights) {
                *weight = if self.allowed(query, key) { *weight } else { 0.0 };
            }
            let inverse = sum(weights).recip();
            weights.iter_mut().for_each(|weight| *weight *= inverse);
        }
        let rounded: Vec<f32> = weights.iter().map(|weight| nearest(*weight)).collect();
        let values = Matrix::new(&self.values[keys.start * a..keys.end * a], keys.len(), a);
        let mut y = vec![0.0; n * a];
        multiply(&mut y, Factors::REPLACE, Matrix::new(&rounded, n, keys.len()), values);
        Block { keys, queries: placed, probabilities: weights, y }
    }

    /// The result of this head, [s, a].
    fn out(&self) -> Vec<f32> {
        let (a, eps) = (self.call.a, self.call.options.exclusive_eps as f32);
        let mut out = vec![0.0; self.call.s * a];
        for queries in self.blocks() {
            let block = self.block(queries.clone());
            for (t, y) in queries.zip(block.y.chunks_exact(a)) {
                exclude(y, self.value(t), eps, &mut out[t * a..][..a]);
            }
        }
        out
    }

    fn gradients(&self, grad: &[f32]) -> Gradients {
        let (s, a, placement) = (self.call.s, self.call.a, &self.call.placement);
        let zeros = || vec![0.0; s * a];
        let mut gradients = Gradients { dq: zeros(), dk: zeros(), dv: zeros() };
        for queries in self.blocks() {
            self.add_block(queries, grad, &mut gradients);
        }
        let mut placed = vec![0.0; a];
        for t in 0..s {
            let of_query = (&self.call.q[self.at(t)], &mut gradients.dq);
            for (x, grads) in [of_query, (self.key(t), &mut gradients.dk)] {
                placement.place(t, x, &mut placed);
                placement.pull_back(t, x, &placed, &mut grads[t * a..][..a]);
            }
        }
        gradients
    }

    /// Adds what a block of queries gives; the gradients of q and k are still those of what
    /// norm and rotation make of them.
    fn add_block(
        &self,
        queries: Range<usize>,
        grad: &[f32],
        Gradients { dq, dk, dv }: &mut Gradients,
    ) {
        let (a, n, eps) = (self.call.a, queries.len(), self.call.options.exclusive_eps as f32);
        let block = self.block(queries.clone());
        let (keys, width) = (block.keys.clone(), block.keys.len());
        let mut dy = vec![0.0; n * a];
        for ((t, y), dy) in queries.clone().zip(block.y.chunks_exact(a)).zip(dy.chunks_exact_mut(a))
        {
            let inputs = [y, self.value(t), &grad[self.at(t)]];
            exclude_backward(inputs, eps, dy, &mut dv[t * a..][..a]);
        }
        round(&mut dy);
        let of_dy = Matrix::new(&dy, n, a);
        let (columns, rows) = (keys.start * a..keys.end * a, queries.start * a..queries.end * a);
        let values = Matrix::new(&self.values[columns.clone()], width, a);
        let mut dscores = vec![0.0; n * width];
        multiply(&mut dscores, Factors::REPLACE, of_dy, values.transposed());
        let mut weights = block.probabilities;
        let of_rows = weights.chunks_exact(width).zip(dscores.chunks_exact_mut(width));
        for (weights, dscores) in of_rows {
            let delta = dot(weights, dscores);
            for (weight, dscore) in weights.iter().zip(dscores) {
                *dscore = weight * (*dscore - delta);
            }
        }
        round(&mut weights);
        round(&mut dscores);
        let (weights, dscores) = (Matrix::new(&weights, n, width), Matrix::new(&dscores, n, width));
        let scaled = Factors::ADD.scaled(self.scale());
        let of_keys = Matrix::new(&self.keys[columns.clone()], width, a);
        multiply(&mut dv[columns.clone()], Factors::ADD, weights.transposed(), of_dy);
        multiply(&mut dk[columns], scaled, dscores.transposed(), Matrix::new(&block.queries, n, a));
        multiply(&mut dq[rows], scaled, dscores, of_keys);
    }
}
