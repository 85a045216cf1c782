use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use super::{GroupedSwigluInputs, GroupedSwigluKernel, GroupedSwigluSaved, Groups, bf16};
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::matrix::{Factors, Matrix, multiply};
use crate::row_products;
use crate::simd::{Loop, MulAdd, sigmoid, vectorised};
use crate::unwritten::{Part, Unwritten};

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
        let weights = || Unwritten::new(g * c * f);
        let (mut d_gate, mut d_up, mut d_down) = (weights(), weights(), weights());
        let mut products: Vec<_> = [
            (d_gate.whole(), (x, c), (&rows.d_gate[..], f)),
            (d_up.whole(), (x, c), (&rows.d_up[..], f)),
            (d_down.whole(), (&rows.hidden[..], f), (dout, c)),
        ]
        .into_iter()
        .flat_map(|(out, a, b)| out.chunks(c * f).enumerate().map(move |(i, out)| (i, out, a, b)))
        .collect();
        products.sort_by_key(|(i, ..)| std::cmp::Reverse(groups.range(*i).len()));
        products.into_par_iter().with_max_len(1).for_each(|(i, out, a, b)| {
            summed_over_rows(out, rows_of(a, groups, i), rows_of(b, groups, i));
        });
        GroupedSwigluInputs {
            x: float_tensor(rows.dx, [groups.rows(), c]),
            w_gate: float_tensor(d_gate.finish(), [g, c, f]),
            w_up: float_tensor(d_up.finish(), [g, c, f]),
            w_down: float_tensor(d_down.finish(), [g, f, c]),
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
    let tasks = Task::of(groups);
    let kept_f = if keep { f } else { 0 };
    let new = |columns| Unwritten::new(rows * columns);
    let (mut out, mut gate, mut up) = (new(c), new(kept_f), new(kept_f));
    let work = tasks.par_iter().zip(split(out.whole(), &tasks, c));
    let work = work.zip(split(gate.whole(), &tasks, kept_f)).zip(split(up.whole(), &tasks, kept_f));
    work.with_max_len(1).for_each(|(((task, out), gate), up)| {
        let x = &x[task.start * c..][..task.len * c];
        let mut scratch = [(); 2].map(|()| Unwritten::new(if keep { 0 } else { task.len * f }));
        let [gate_scratch, up_scratch] = &mut scratch;
        let (gate, up) = if keep { (gate, up) } else { (gate_scratch.whole(), up_scratch.whole()) };
        let gate = product(gate, x, experts.gate(task.group), [task.len, c, f]);
        let up = product(up, x, experts.up(task.group), [task.len, c, f]);
        let mut hidden = gate.to_vec();
        vectorised(Swiglu { gate_to_hidden: &mut hidden, up });
        product(out, &hidden, experts.down(task.group), [task.len, f, c]);
    });
    let saved = keep.then(|| GroupedSwigluSaved {
        gate: float_tensor(gate.finish(), [rows, f]),
        up: float_tensor(up.finish(), [rows, f]),
    });
    (float_tensor(out.finish(), [rows, c]), saved)
}

/// From gate to `silu(gate) up`.
struct Swiglu<'a> {
    gate_to_hidden: &'a mut [f32],
    up: &'a [f32],
}

impl Loop for Swiglu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        for (gate, up) in self.gate_to_hidden.iter_mut().zip(self.up) {
            *gate *= sigmoid::<M>(*gate) * up;
        }
    }
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
        let new = |columns| Unwritten::new(groups.rows() * columns);
        let (mut dx, mut hidden, mut d_gate, mut d_up) = (new(c), new(f), new(f), new(f));
        let work = tasks.par_iter().zip(split(dx.whole(), &tasks, c));
        let work = work.zip(split(hidden.whole(), &tasks, f));
        let work = work.zip(split(d_gate.whole(), &tasks, f));
        let work = work.zip(split(d_up.whole(), &tasks, f));
        work.with_max_len(1).for_each(|((((task, dx), hidden), d_gate), d_up)| {
            let dout = &dout[task.start * c..][..task.len * c];
            let gate = &gate[task.start * f..][..task.len * f];
            let up = &up[task.start * f..][..task.len * f];
            let d_up = transposed_product(d_up, dout, experts.down(task.group), [task.len, c, f]);
            let (hidden, d_gate) = (hidden.copy(up), d_gate.copy(gate));
            vectorised(SwigluBackward { up_to_hidden: hidden, gate_to_d_gate: d_gate, d_up });
            let sizes = [task.len, f, c];
            let dx = transposed_product(dx, d_gate, experts.gate(task.group), sizes);
            add_transposed_product(dx, d_up, experts.up(task.group), sizes);
        });
        Self {
            dx: dx.finish(),
            hidden: hidden.finish(),
            d_gate: d_gate.finish(),
            d_up: d_up.finish(),
        }
    }
}

/// On entry `d_up` holds the gradient dh of `silu(gate) up`. On return it is dh silu(gate), the
/// gate has become dh up silu'(gate) with silu'(z) = s (1 + z (1 - s)), and up `silu(gate) up`.
struct SwigluBackward<'a> {
    up_to_hidden: &'a mut [f32],
    gate_to_d_gate: &'a mut [f32],
    d_up: &'a mut [f32],
}

impl Loop for SwigluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let values = self.up_to_hidden.iter_mut().zip(self.gate_to_d_gate).zip(self.d_up);
        for ((up, gate), d_up) in values {
            let (s, dh) = (sigmoid::<M>(*gate), *d_up);
            let silu = *gate * s;
            let d_gate = dh * *up * s * (1.0 + *gate * (1.0 - s));
            *d_up = dh * silu;
            *up *= silu;
            *gate = d_gate;
        }
    }
}

/// Rows of one group with as many columns.
type Rows<'a> = (&'a [f32], [usize; 2]);

fn rows_of<'a>((values, cols): (&'a [f32], usize), groups: &Groups, i: usize) -> Rows<'a> {
    let range = groups.range(i);
    (&values[range.start * cols..range.end * cols], [range.len(), cols])
}

/// Writes `a^T b`.
fn summed_over_rows(out: Part, (a, [rows, k]): Rows, (b, [_, n]): Rows) {
    if row_products::fits_outer([rows, k, n]) {
        out.outer(a, b, [rows, k, n]);
    } else {
        out.product(Matrix::new(a, rows, k).transposed(), Matrix::new(b, rows, n));
    }
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

    /// [c, f].
    fn gate(&self, group: usize) -> &'a [f32] {
        &self.gate[group * self.c * self.f..][..self.c * self.f]
    }

    /// [c, f].
    fn up(&self, group: usize) -> &'a [f32] {
        &self.up[group * self.c * self.f..][..self.c * self.f]
    }

    /// [f, c].
    fn down(&self, group: usize) -> &'a [f32] {
        &self.down[group * self.c * self.f..][..self.c * self.f]
    }
}

/// Writes `x w` with `x` [rows, k] and `w` [k, n].
fn product<'a>(out: Part<'a>, x: &[f32], w: &[f32], sizes: [usize; 3]) -> &'a mut [f32] {
    let [rows, k, n] = sizes;
    if row_products::fits(sizes) {
        let out = out.zeros();
        row_products::multiply(out, x, w, sizes);
        out
    } else {
        out.product(Matrix::new(x, rows, k), Matrix::new(w, k, n))
    }
}

/// Writes `x w^T` with `x` [rows, k] and `w` [n, k].
fn transposed_product<'a>(out: Part<'a>, x: &[f32], w: &[f32], sizes: [usize; 3]) -> &'a mut [f32] {
    let [rows, k, n] = sizes;
    if row_products::fits_transposed(sizes) {
        let out = out.zeros();
        row_products::multiply_transposed(out, false, x, w, sizes);
        out
    } else {
        out.product(Matrix::new(x, rows, k), Matrix::new(w, n, k).transposed())
    }
}

/// Adds `x w^T`.
fn add_transposed_product(out: &mut [f32], x: &[f32], w: &[f32], sizes: [usize; 3]) {
    let [rows, k, n] = sizes;
    if row_products::fits_transposed(sizes) {
        row_products::multiply_transposed(out, true, x, w, sizes);
    } else {
        let w = Matrix::new(w, n, k).transposed();
        multiply(out, Factors::ADD, Matrix::new(x, rows, k), w);
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

/// The rows of `values` that belong to each task; rows of no group are zeroed.
fn split<'a>(mut values: Part<'a>, tasks: &[Task], cols: usize) -> Vec<Part<'a>> {
    let (mut parts, mut next_row) = (Vec::with_capacity(tasks.len()), 0);
    for task in tasks {
        let (gap, rest) = values.split_at((task.start - next_row) * cols);
        gap.zeros();
        let (part, rest) = rest.split_at(task.len * cols);
        parts.push(part);
        (values, next_row) = (rest, task.start + task.len);
    }
    values.zeros();
    parts
}
