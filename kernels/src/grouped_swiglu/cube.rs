mod kernel;

use burn::backend::ops::IntTensorOps;
use burn::tensor::TensorData;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{GroupedSwigluInputs, GroupedSwigluKernel, GroupedSwigluSaved, Groups};
use crate::cube::tile::SIDE;
use crate::cube::{dims, empty, floats, per_tile, storage, zeros};

const OP: &str = "grouped_swiglu";

impl GroupedSwigluKernel for CubeBackend {
    fn forward(inputs: GroupedSwigluInputs<Self>, groups: &Groups) -> CubeTensor {
        Self::forward_saving(inputs, groups).0
    }

    fn forward_saving(
        inputs: GroupedSwigluInputs<Self>,
        groups: &Groups,
    ) -> (CubeTensor, Option<GroupedSwigluSaved<Self>>) {
        let GroupedSwigluInputs { x, w_gate, w_up, w_down } = inputs;
        let arguments = [("x", x), ("w_gate", w_gate), ("w_up", w_up), ("w_down", w_down)];
        let [x, w_gate, w_up, w_down] = floats(OP, arguments);
        let ([rows, c], [_, _, f]) = (dims(&x), dims(&w_gate));
        let [gate, up, hidden] = [(); 3].map(|()| empty(&x, [rows, f], x.dtype));
        let jobs = Jobs::of_rows(groups, &x);
        if let Some((cubes, jobs)) = jobs.launch(c, [f]) {
            let (client, dtype) = (x.client.clone(), storage(&x));
            let (count, units) = per_tile(&client, cubes);
            kernel::gate_up::launch(
                &client,
                count,
                units,
                x.into_buffer_arg(),
                w_gate.into_buffer_arg(),
                w_up.into_buffer_arg(),
                jobs.into_buffer_arg(),
                gate.clone().into_buffer_arg(),
                up.clone().into_buffer_arg(),
                hidden.clone().into_buffer_arg(),
                c,
                f,
                cubes,
                dtype,
            );
        }
        (product(hidden, w_down, &jobs), Some(GroupedSwigluSaved { gate, up }))
    }

    fn backward(
        inputs: GroupedSwigluInputs<Self>,
        groups: &Groups,
        saved: Option<GroupedSwigluSaved<Self>>,
        grad: CubeTensor,
    ) -> GroupedSwigluInputs<Self> {
        let GroupedSwigluInputs { x, w_gate, w_up, w_down } = inputs;
        let arguments =
            [("x", x), ("w_gate", w_gate), ("w_up", w_up), ("w_down", w_down), ("grad", grad)];
        let [x, w_gate, w_up, w_down, grad] = floats(OP, arguments);
        let rows = Jobs::of_rows(groups, &x);
        let saved = saved.expect("forward saves");
        let [hidden, d_gate, d_up] = hidden_gradients(&grad, &w_down, saved, &rows);
        let groups = Jobs::of_groups(groups, &x);
        GroupedSwigluInputs {
            w_gate: weight_gradient(&x, &d_gate, &groups),
            w_up: weight_gradient(&x, &d_up, &groups),
            w_down: weight_gradient(&hidden, &grad, &groups),
            x: input_gradient([d_gate, w_gate, d_up, w_up], &rows),
        }
    }
}

/// The rows of `hidden` times the matrices `w_down`.
fn product(hidden: CubeTensor, w_down: CubeTensor, jobs: &Jobs) -> CubeTensor {
    let ([rows, f], [_, _, c]) = (dims(&hidden), dims(&w_down));
    let out = zeros(&hidden, [rows, c], hidden.dtype);
    if let Some((cubes, jobs)) = jobs.launch(f, [c]) {
        let (client, dtype) = (out.client.clone(), storage(&out));
        let (count, units) = per_tile(&client, cubes);
        kernel::product::launch(
            &client,
            count,
            units,
            hidden.into_buffer_arg(),
            w_down.into_buffer_arg(),
            jobs.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            f,
            c,
            cubes,
            dtype,
        );
    }
    out
}

/// `silu(gate) up`, and the gradients of gate and up.
fn hidden_gradients(
    grad: &CubeTensor,
    w_down: &CubeTensor,
    saved: GroupedSwigluSaved<CubeBackend>,
    jobs: &Jobs,
) -> [CubeTensor; 3] {
    let [_, f, c] = dims(w_down);
    let [rows, _] = dims(grad);
    let results = [(); 3].map(|()| empty(grad, [rows, f], grad.dtype));
    if let Some((cubes, jobs)) = jobs.launch(c, [f]) {
        let (client, dtype) = (grad.client.clone(), storage(grad));
        let (count, units) = per_tile(&client, cubes);
        let [hidden, d_gate, d_up] = results.clone();
        kernel::hidden_gradients::launch(
            &client,
            count,
            units,
            grad.clone().into_buffer_arg(),
            w_down.clone().into_buffer_arg(),
            saved.gate.into_buffer_arg(),
            saved.up.into_buffer_arg(),
            jobs.into_buffer_arg(),
            hidden.into_buffer_arg(),
            d_gate.into_buffer_arg(),
            d_up.into_buffer_arg(),
            c,
            f,
            cubes,
            dtype,
        );
    }
    results
}

/// `d_gate w_gate^T + d_up w_up^T` over the rows.
fn input_gradient([d_gate, w_gate, d_up, w_up]: [CubeTensor; 4], jobs: &Jobs) -> CubeTensor {
    let ([rows, f], [_, c, _]) = (dims(&d_gate), dims(&w_gate));
    let dx = zeros(&d_gate, [rows, c], d_gate.dtype);
    if let Some((cubes, jobs)) = jobs.launch(f, [c]) {
        let (client, dtype) = (dx.client.clone(), storage(&dx));
        let (count, units) = per_tile(&client, cubes);
        kernel::input_gradient::launch(
            &client,
            count,
            units,
            d_gate.into_buffer_arg(),
            w_gate.into_buffer_arg(),
            d_up.into_buffer_arg(),
            w_up.into_buffer_arg(),
            jobs.into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            c,
            f,
            cubes,
            dtype,
        );
    }
    dx
}

/// `left^T right` over the rows of each group.
fn weight_gradient(left: &CubeTensor, right: &CubeTensor, jobs: &Jobs) -> CubeTensor {
    let ([rows, m], [_, n]) = (dims(left), dims(right));
    let out = zeros(left, [jobs.num_jobs(), m, n], left.dtype);
    if let Some((cubes, jobs)) = jobs.launch(rows, [m, n]) {
        let (client, dtype) = (left.client.clone(), storage(left));
        let (count, units) = per_tile(&client, cubes);
        kernel::weight_gradient::launch(
            &client,
            count,
            units,
            left.clone().into_buffer_arg(),
            right.clone().into_buffer_arg(),
            jobs.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            m,
            n,
            cubes,
            dtype,
        );
    }
    out
}

/// What the cubes of a product have to do, beside the tensors they work on: [jobs, 3], each a
/// group, its first row and its number of rows; `None` for nothing.
struct Jobs(Option<CubeTensor>);

impl Jobs {
    /// A job for each [`SIDE`] rows of a group or what is left of it, in row order.
    fn of_rows(groups: &Groups, like: &CubeTensor) -> Self {
        let order = groups.in_row_order().into_iter();
        let jobs = order.flat_map(|group| {
            let range = groups.range(group);
            range
                .clone()
                .step_by(SIDE)
                .map(move |start| [group, start, SIDE.min(range.end - start)])
        });
        Self::new(jobs.collect(), like)
    }

    /// A job for each group; those without rows too, to be given zeros.
    fn of_groups(groups: &Groups, like: &CubeTensor) -> Self {
        let job = |group| [group, groups.range(group).start, groups.range(group).len()];
        Self::new((0..groups.num_groups()).map(job).collect(), like)
    }

    fn new(jobs: Vec<[usize; 3]>, like: &CubeTensor) -> Self {
        if jobs.is_empty() {
            return Self(None);
        }
        let shape = [jobs.len(), 3];
        let as_i32 = |value| i32::try_from(value).expect("less than 2^31 groups and rows");
        let jobs: Vec<i32> = jobs.into_iter().flatten().map(as_i32).collect();
        Self(Some(CubeBackend::int_from_data(TensorData::new(jobs, shape), &like.device)))
    }

    fn num_jobs(&self) -> usize {
        self.0.as_ref().map_or(0, |jobs| dims::<2>(jobs)[0])
    }

    /// The number of tiles and the jobs of products over `depth` with these sizes beside that of a
    /// job, each cut into tiles; `None` where there is nothing to compute.
    fn launch<const N: usize>(
        &self,
        depth: usize,
        sizes: [usize; N],
    ) -> Option<(usize, CubeTensor)> {
        let tiles: usize = sizes.iter().map(|size| size.div_ceil(SIDE)).product();
        let jobs = self.0.clone().filter(|_| depth * tiles > 0)?;
        Some((self.num_jobs() * tiles, jobs))
    }
}
