use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use super::{GroupedSwigluInputs, GroupedSwigluKernel, GroupedSwigluSaved, Groups, bf16};
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::sigmoid_in_place;

/// Rows of a task. Large enough that reading a group's matrices again costs little, small enough
/// that one popular expert does not keep the other threads waiting.
const TASK_ROWS: usize = 256;

impl GroupedSwigluKernel for Flex {
    fn forward(inputs: GroupedSwigluInputs<Flex>, groups: &Groups) -> FlexTensor {
        if inputs.x.dtype() == DType::BF16 {
            return bf16::forward(inputs, groups);
        }
        forward(inputs, groups, false).0
    }

    fn forward_saving(
        inputs: GroupedSwigluInputs<Flex>,
        groups: &Groups,
    ) -> (FlexTensor, Option<GroupedSwigluSaved<Flex>>) {
        if inputs.x.dtype() == DType::BF16 {
            return (bf16::forward(inputs, groups), None);
        }
        forward(inputs, groups, true)
    }

    fn backward(
        inputs: GroupedSwigluInputs<Flex>,
        groups: &Groups,
        saved: Option<GroupedSwigluSaved<Flex>>,
        grad: FlexTensor,
    ) -> GroupedSwigluInputs<Flex> {
        if inputs.x.dtype() == DType::BF16 {
            return bf16::backward(inputs, groups, grad);
        }
        let (inputs, grad) = (inputs.contiguous(), contiguous(grad));
        let saved = saved.expect("forward saves");
        let experts = Experts::of(&inputs);
        let (x, dout) = (floats(&inputs.x), floats(&grad));
        let rows = RowGradients::of(&experts, groups, &saved, dout);
        let (c, f, g) = (experts.c, experts.f, groups.num_groups());

        // A sum over the rows of a group is one product, whatever the number of threads. Popular
        // groups go first, so that no long task is left for the end.
        let weights = || vec![0.0; g * c * f];
        let (mut d_gate, mut d_up, mut d_down) = (weights(), weights(), weights());
        let mut products: Vec<_> = [
            (matrices(&mut d_gate, c * f), (x, c), (&rows.d_gate[..], f)),
            (matrices(&mut d_up, c * f), (x, c), (&rows.d_up[..], f)),
            (matrices(&mut d_down, c * f), (&rows.hidden[..], f), (dout, c)),
        ]
        .into_iter()
        .flat_map(|(matrices, a, b)| matrices.map(move |(i, out)| (i, out, a, b)))
        .filter(|(i, ..)| !groups.range(*i).is_empty())
        .collect();
        products.sort_by_key(|(i, ..)| std::cmp::Reverse(groups.range(*i).len()));
        products.into_par_iter().with_max_len(1).for_each(|(i, out, a, b)| {
            product(out, rows_of(a, groups, i).transposed(), rows_of(b, groups, i));
        });
        GroupedSwigluInputs {
            x: float_tensor(rows.dx, [groups.rows(), c]),
            w_gate: float_tensor(d_gate, [g, c, f]),
            w_up: float_tensor(d_up, [g, c, f]),
            w_down: float_tensor(d_down, [g, f, c]),
        }
    }
}

/// The result and, if `keep`, the rows times the gate and the up matrices.
fn forward(
    inputs: GroupedSwigluInputs<Flex>,
    groups: &Groups,
    keep: bool,
) -> (FlexTensor, Option<GroupedSwigluSaved<Flex>>) {
    let inputs = inputs.contiguous();
    let experts = Experts::of(&inputs);
    let (c, f, rows) = (experts.c, experts.f, groups.rows());
    let x = floats(&inputs.x);
    let (tasks, kept_f) = (Task::of(groups), if keep { f } else { 0 });
    let (mut out, mut gate) = (unwritten(groups, c), unwritten(groups, kept_f));
    let mut up = gate.clone();
    let work = tasks.par_iter().zip(split(&mut out, &tasks, c));
    let work = work.zip(split(&mut gate, &tasks, kept_f)).zip(split(&mut up, &tasks, kept_f));
    work.for_each(|(((task, out), gate), up)| {
        let x = Matrix::new(&x[task.start * c..][..task.len * c], task.len, c);
        let mut scratch = vec![0.0; if keep { 0 } else { 2 * task.len * f }];
        let (gate, up) = if keep { (gate, up) } else { scratch.split_at_mut(task.len * f) };
        product(gate, x, experts.gate(task.group));
        product(up, x, experts.up(task.group));
        let mut hidden = gate.to_vec();
        sigmoid_in_place(&mut hidden);
        for ((hidden, gate), up) in hidden.iter_mut().zip(&*gate).zip(&*up) {
            *hidden *= gate * up;
        }
        product(out, Matrix::new(&hidden, task.len, f), experts.down(task.group));
    });
    let saved = keep.then(|| GroupedSwigluSaved {
        gate: float_tensor(gate, [rows, f]),
        up: float_tensor(up, [rows, f]),
    });
    (float_tensor(out, [rows, c]), saved)
}

/// Rows that are zero outside every group. In a debug build those of the groups are NaN until a
/// product writes them: a row left out must not pass for an expert's zero.
fn unwritten(groups: &Groups, columns: usize) -> Vec<f32> {
    let mut rows = vec![0.0; groups.rows() * columns];
    if cfg!(debug_assertions) {
        for group in 0..groups.num_groups() {
            let range = groups.range(group);
            rows[range.start * columns..range.end * columns].fill(f32::NAN);
        }
    }
    rows
}

/// What backward finds for each row on its own; zero in rows of no group.
struct RowGradients {
    dx: Vec<f32>,
    hidden: Vec<f32>,
    d_gate: Vec<f32>,
    d_up: Vec<f32>,
}

impl RowGradients {
    fn of(
        experts: &Experts,
        groups: &Groups,
        saved: &GroupedSwigluSaved<Flex>,
        dout: &[f32],
    ) -> Self {
        let (c, f, tasks) = (experts.c, experts.f, Task::of(groups));
        let (gate, up) = (floats(&saved.gate), floats(&saved.up));
        let new = |columns| unwritten(groups, columns);
        let mut rows = Self { dx: new(c), hidden: new(f), d_gate: new(f), d_up: new(f) };
        let work = tasks.par_iter().zip(split(&mut rows.dx, &tasks, c));
        let work = work.zip(split(&mut rows.hidden, &tasks, f));
        let work = work.zip(split(&mut rows.d_gate, &tasks, f));
        let work = work.zip(split(&mut rows.d_up, &tasks, f));
        work.for_each(|((((task, dx), hidden), d_gate), d_up)| {
            let matrix = |values, cols| Matrix::new(values, task.len, cols);
            let dout = &dout[task.start * c..][..task.len * c];
            let gate = &gate[task.start * f..][..task.len * f];
            let up = &up[task.start * f..][..task.len * f];
            product(d_up, matrix(dout, c), experts.down(task.group).transposed());
            hidden.copy_from_slice(gate);
            sigmoid_in_place(hidden);
            activation_backward(gate, up, hidden, d_gate, d_up);
            product(dx, matrix(d_gate, f), experts.gate(task.group).transposed());
            let up = experts.up(task.group).transposed();
            multiply(dx, Factors::ADD, matrix(d_up, f), up);
        });
        rows
    }
}

/// On entry `hidden` holds s = sigmoid(gate) and `d_up` the gradient dh of `silu(gate) up`. On
/// return `hidden` is that product, `d_up` is dh silu(gate) and `d_gate` is dh up silu'(gate), with
/// silu'(z) = s (1 + z (1 - s)).
fn activation_backward(
    gate: &[f32],
    up: &[f32],
    hidden: &mut [f32],
    d_gate: &mut [f32],
    d_up: &mut [f32],
) {
    let outputs = hidden.iter_mut().zip(d_gate).zip(d_up);
    for (((hidden, d_gate), d_up), (gate, up)) in outputs.zip(gate.iter().zip(up)) {
        let (s, dh) = (*hidden, *d_up);
        let silu = gate * s;
        *hidden = silu * up;
        *d_gate = dh * up * s * (1.0 + gate * (1.0 - s));
        *d_up = dh * silu;
    }
}

fn product(out: &mut [f32], a: Matrix, b: Matrix) {
    multiply(out, Factors::REPLACE, a, b);
}

/// Matrices of `len` elements each, with their positions.
fn matrices(values: &mut [f32], len: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
    values.chunks_mut(len.max(1)).enumerate()
}

fn rows_of<'a>((values, cols): (&'a [f32], usize), groups: &Groups, i: usize) -> Matrix<'a> {
    let range = groups.range(i);
    Matrix::new(&values[range.start * cols..range.end * cols], range.len(), cols)
}

/// The matrices of all groups.
struct Experts<'a> {
    c: usize,
    f: usize,
    gate: &'a [f32],
    up: &'a [f32],
    down: &'a [f32],
}

impl<'a> Experts<'a> {
    fn of(inputs: &'a GroupedSwigluInputs<Flex>) -> Self {
        let [_, c, f] = dims(&inputs.w_gate);
        let (gate, up) = (floats(&inputs.w_gate), floats(&inputs.w_up));
        Self { c, f, gate, up, down: floats(&inputs.w_down) }
    }

    fn gate(&self, group: usize) -> Matrix<'a> {
        Matrix::new(&self.gate[group * self.c * self.f..][..self.c * self.f], self.c, self.f)
    }

    fn up(&self, group: usize) -> Matrix<'a> {
        Matrix::new(&self.up[group * self.c * self.f..][..self.c * self.f], self.c, self.f)
    }

    fn down(&self, group: usize) -> Matrix<'a> {
        Matrix::new(&self.down[group * self.c * self.f..][..self.c * self.f], self.f, self.c)
    }
}

impl GroupedSwigluInputs<Flex> {
    pub(super) fn contiguous(self) -> Self {
        Self {
            x: contiguous(self.x),
            w_gate: contiguous(self.w_gate),
            w_up: contiguous(self.w_up),
            w_down: contiguous(self.w_down),
        }
    }
}

/// At most [`TASK_ROWS`] rows of one group.
struct Task {
    group: usize,
    start: usize,
    len: usize,
}

impl Task {
    /// The tasks of all groups, in row order.
    fn of(groups: &Groups) -> Vec<Self> {
        let order = groups.in_row_order().into_iter();
        order
            .flat_map(|group| {
                let range = groups.range(group);
                range.clone().step_by(TASK_ROWS).map(move |start| Self {
                    group,
                    start,
                    len: TASK_ROWS.min(range.end - start),
                })
            })
            .collect()
    }
}

/// The rows of `values` that belong to each task; with `cols` 0 an empty slice for each.
fn split<'a>(mut values: &'a mut [f32], tasks: &[Task], cols: usize) -> Vec<&'a mut [f32]> {
    let mut next_row = 0;
    let part = |task: &Task| {
        let (_, rest) = std::mem::take(&mut values).split_at_mut((task.start - next_row) * cols);
        let (part, rest) = rest.split_at_mut(task.len * cols);
        (values, next_row) = (rest, task.start + task.len);
        part
    };
    tasks.iter().map(part).collect()
}
