//! Experts whose products are those of bf16: operands and results are rounded, sums are f32, and so
//! is what lies between the products. Nothing is kept for backward.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use half::bf16;
use rayon::prelude::*;

use super::{GroupedSwigluInputs, Groups};
use crate::bf16::{round, store_all, widen};
use crate::flex::{contiguous, dims, half_tensor, halves};
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::sigmoid_in_place;

pub(super) fn forward(inputs: GroupedSwigluInputs<Flex>, groups: &Groups) -> FlexTensor {
    let inputs = inputs.contiguous();
    let call = Call::new(&inputs, groups);
    let parts: Vec<Vec<f32>> = (0..groups.num_groups())
        .into_par_iter()
        .map(|group| {
            if groups.range(group).is_empty() {
                return Vec::new();
            }
            let of_group = call.group(group);
            product(&of_group.activations().hidden, &of_group.down, of_group.rows)
        })
        .collect();
    half_tensor(call.rows(&parts), [groups.rows(), call.c])
}

pub(super) fn backward(
    inputs: GroupedSwigluInputs<Flex>,
    groups: &Groups,
    grad: FlexTensor,
) -> GroupedSwigluInputs<Flex> {
    let (inputs, grad) = (inputs.contiguous(), contiguous(grad));
    let call = Call::new(&inputs, groups);
    let (g, c, f, dout) = (groups.num_groups(), call.c, call.f, halves(&grad));
    let weights = || vec![bf16::ZERO; g * c * f];
    let (mut d_gate, mut d_up, mut d_down) = (weights(), weights(), weights());
    let len = (c * f).max(1);
    let of_weights = d_gate.par_chunks_mut(len).zip(d_up.par_chunks_mut(len));
    let parts: Vec<Vec<f32>> = of_weights
        .zip(d_down.par_chunks_mut(len))
        .enumerate()
        .map(|(group, ((d_gate, d_up), d_down))| {
            let range = groups.range(group);
            if range.is_empty() {
                return Vec::new();
            }
            let dout = widen(&dout[range.start * c..range.end * c]);
            call.group(group).backward(&dout, [d_gate, d_up, d_down])
        })
        .collect();
    let stack = |values, shape| half_tensor(values, shape);
    GroupedSwigluInputs {
        x: half_tensor(call.rows(&parts), [groups.rows(), c]),
        w_gate: stack(d_gate, [g, c, f]),
        w_up: stack(d_up, [g, c, f]),
        w_down: stack(d_down, [g, f, c]),
    }
}

struct Call<'a> {
    groups: &'a Groups,
    c: usize,
    f: usize,
    x: &'a [bf16],
    gate: &'a [bf16],
    up: &'a [bf16],
    down: &'a [bf16],
}

impl<'a> Call<'a> {
    fn new(inputs: &'a GroupedSwigluInputs<Flex>, groups: &'a Groups) -> Self {
        let [_, c, f] = dims(&inputs.w_gate);
        let (gate, up) = (halves(&inputs.w_gate), halves(&inputs.w_up));
        Self { groups, c, f, x: halves(&inputs.x), gate, up, down: halves(&inputs.w_down) }
    }

    /// One group's rows and matrices in f32; the stacks stay as they are.
    fn group(&self, group: usize) -> Group {
        let (c, f, range) = (self.c, self.f, self.groups.range(group));
        let x = Wide { values: widen(&self.x[range.start * c..range.end * c]), columns: c };
        let matrix = |stack: &[bf16], columns| Wide {
            values: widen(&stack[group * c * f..][..c * f]),
            columns,
        };
        Group {
            rows: range.len(),
            x,
            gate: matrix(self.gate, f),
            up: matrix(self.up, f),
            down: matrix(self.down, c),
        }
    }

    /// The rows [rows, c] of all groups, zero in rows of none.
    fn rows(&self, parts: &[Vec<f32>]) -> Vec<bf16> {
        let mut rows = vec![bf16::ZERO; self.groups.rows() * self.c];
        for (group, part) in parts.iter().enumerate() {
            let range = self.groups.range(group);
            store_all(part, &mut rows[range.start * self.c..range.end * self.c]);
        }
        rows
    }
}

/// A matrix of bf16 values in f32.
struct Wide {
    values: Vec<f32>,
    columns: usize,
}

impl Wide {
    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(&self.values, self.values.len() / self.columns.max(1), self.columns)
    }
}

/// One group, all in f32.
struct Group {
    rows: usize,
    x: Wide,
    gate: Wide,
    up: Wide,
    down: Wide,
}

/// Rows times matrices, each [rows, f] and rounded.
struct Activations {
    gate: Wide,
    up: Wide,
    hidden: Wide,
}

impl Group {
    fn activations(&self) -> Activations {
        let f = self.gate.columns;
        let rows = |weights: &Wide| Wide {
            values: rounded(product(&self.x, weights, self.rows)),
            columns: f,
        };
        let (gate, up) = (rows(&self.gate), rows(&self.up));
        let mut hidden = gate.values.clone();
        sigmoid_in_place(&mut hidden);
        for ((hidden, gate), up) in hidden.iter_mut().zip(&gate.values).zip(&up.values) {
            *hidden *= gate * up;
        }
        Activations { gate, up, hidden: Wide { values: rounded(hidden), columns: f } }
    }

    /// The gradient of the rows [rows, c], not rounded; those of the matrices are stored.
    fn backward(&self, dout: &[f32], [d_gate, d_up, d_down]: [&mut [bf16]; 3]) -> Vec<f32> {
        let Activations { gate, up, hidden } = self.activations();
        let (c, f) = (self.x.columns, gate.columns);
        let dout = Matrix::new(dout, self.rows, c);
        let mut d_hidden = vec![0.0; self.rows * f];
        multiply(&mut d_hidden, Factors::REPLACE, dout, self.down.matrix().transposed());
        round(&mut d_hidden);
        let mut of_gate = gate.values.clone();
        sigmoid_in_place(&mut of_gate);
        let mut of_up = d_hidden;
        for (i, (of_gate, of_up)) in of_gate.iter_mut().zip(&mut of_up).enumerate() {
            let (s, dh, z) = (*of_gate, *of_up, gate.values[i]);
            // silu'(z) = s (1 + z (1 - s))
            *of_gate = dh * up.values[i] * s * (1.0 + z * (1.0 - s));
            *of_up = dh * z * s;
        }
        let (of_gate, of_up) = (rounded(of_gate), rounded(of_up));
        let (of_gate, of_up) =
            (Matrix::new(&of_gate, self.rows, f), Matrix::new(&of_up, self.rows, f));
        let mut dx = vec![0.0; self.rows * c];
        multiply(&mut dx, Factors::REPLACE, of_gate, self.gate.matrix().transposed());
        multiply(&mut dx, Factors::ADD, of_up, self.up.matrix().transposed());
        let x = self.x.matrix().transposed();
        for (out, a, b) in
            [(d_gate, x, of_gate), (d_up, x, of_up), (d_down, hidden.matrix().transposed(), dout)]
        {
            let mut wide = vec![0.0; c * f];
            multiply(&mut wide, Factors::REPLACE, a, b);
            store_all(&wide, out);
        }
        dx
    }
}

fn rounded(mut values: Vec<f32>) -> Vec<f32> {
    round(&mut values);
    values
}

/// `rows` rows of `a` times `b`.
fn product(a: &Wide, b: &Wide, rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * b.columns];
    multiply(&mut out, Factors::REPLACE, Matrix::new(&a.values, rows, a.columns), b.matrix());
    out
}
