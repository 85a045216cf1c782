mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::SequenceArg;

use super::{PermuteKernel, RowIds};
use crate::cube::{
    dims, empty, float, floats, ids, per_element, per_row, storage, vector_size, zeros,
};

impl RowIds<CubeBackend> {
    /// The same ids, each list in order in memory.
    pub(crate) fn contiguous(self, op: &str) -> Self {
        let row_of = ids(op, "row_of", self.row_of);
        let assignment_of = ids(op, "assignment_of", self.assignment_of);
        Self { row_of, assignment_of, ..self }
    }
}

impl PermuteKernel for CubeBackend {
    fn dispatch(x: CubeTensor, map: RowIds<Self>) -> CubeTensor {
        let ([x], map) = (floats("dispatch_rows", [("x", x)]), map.contiguous("dispatch_rows"));
        let ([tokens, dim], [rows]) = (dims(&x), dims(&map.assignment_of));
        let [_, slots] = dims(&map.row_of);
        if rows * tokens * slots * dim == 0 {
            return zeros(&x, [rows, dim], x.dtype);
        }
        let out = empty(&x, [rows, dim], x.dtype);
        let (client, dtype, vector) = (x.client.clone(), storage(&x), vector_size(&x, dim));
        let (cubes, units) = per_element(&client, rows * dim / vector);
        kernel::dispatch::launch(
            &client,
            cubes,
            units,
            vector,
            x.into_buffer_arg(),
            map.assignment_of.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            tokens,
            slots,
            dim / vector,
            dtype,
        );
        out
    }

    fn dispatch_backward(map: RowIds<Self>, grad: CubeTensor) -> CubeTensor {
        let [grad] = floats("dispatch_rows", [("grad", grad)]);
        let map = map.contiguous("dispatch_rows");
        sum_of_slots(&[grad], None, map)
    }

    fn combine(parts: Vec<CubeTensor>, weights: CubeTensor, map: RowIds<Self>) -> CubeTensor {
        let map = map.contiguous("combine_rows");
        let (parts, [weights]) = arguments(parts, [("weights", weights)]);
        sum_of_slots(&parts, Some(weights), map)
    }

    fn combine_backward(
        parts: Vec<CubeTensor>,
        weights: CubeTensor,
        map: RowIds<Self>,
        grad: CubeTensor,
    ) -> (Vec<CubeTensor>, CubeTensor) {
        let map = map.contiguous("combine_rows");
        let (parts, [weights, grad]) = arguments(parts, [("weights", weights), ("grad", grad)]);
        let dweights = weight_gradients(&parts, &grad, &map);
        let mut first = 0;
        let dparts = parts.iter().map(|part| {
            let dpart = part_gradient(part, first, &weights, &map, &grad);
            first += dims::<2>(part)[0];
            dpart
        });
        (dparts.collect(), dweights)
    }
}

/// The parts, `weights` and, in a backward, `grad`.
fn arguments<const N: usize>(
    parts: Vec<CubeTensor>,
    others: [(&str, CubeTensor); N],
) -> (Vec<CubeTensor>, [CubeTensor; N]) {
    let of_first = ("y", parts[0].dtype);
    let float = |name, tensor| float("combine_rows", name, tensor, of_first);
    let parts = parts.into_iter().map(|part| float("y", part)).collect();
    (parts, others.map(|(name, tensor)| float(name, tensor)))
}

/// The parts that have rows, since a device has no empty buffers.
fn filled(parts: &[CubeTensor]) -> impl Iterator<Item = CubeTensor> {
    parts.iter().filter(|part| dims::<2>(part)[0] > 0).cloned()
}

/// The first row of each of the [`filled`] parts, and the end of the last.
fn starts(parts: &[CubeTensor]) -> SequenceArg<usize> {
    let mut end = 0;
    let ends = filled(parts).map(|part| {
        end += dims::<2>(&part)[0];
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// The sum of each token's rows with their weights, or each with weight 1.
fn sum_of_slots(
    parts: &[CubeTensor],
    weights: Option<CubeTensor>,
    map: RowIds<CubeBackend>,
) -> CubeTensor {
    let ([tokens, slots], [_, dim]) = (dims(&map.row_of), dims(&parts[0]));
    let [rows] = dims(&map.assignment_of);
    let (like, shape) = (&parts[0], [tokens, dim]);
    if tokens * slots * rows * dim == 0 {
        return zeros(like, shape, like.dtype);
    }
    let out = empty(like, shape, like.dtype);
    let (client, vector) = (like.client.clone(), vector_size(like, dim));
    let (cubes, units) = per_element(&client, tokens * dim / vector);
    let is_weighted = weights.is_some();
    kernel::sum_of_slots::launch(
        &client,
        cubes,
        units,
        vector,
        filled(parts).map(CubeTensor::into_buffer_arg).collect(),
        starts(parts),
        // Not read where there are no weights.
        weights.unwrap_or_else(|| out.clone()).into_buffer_arg(),
        map.row_of.into_buffer_arg(),
        out.clone().into_buffer_arg(),
        rows,
        slots,
        dim / vector,
        is_weighted,
        storage(like),
    );
    out
}

/// The gradient of the part whose first row is row `first` of the map.
fn part_gradient(
    part: &CubeTensor,
    first: usize,
    weights: &CubeTensor,
    map: &RowIds<CubeBackend>,
    grad: &CubeTensor,
) -> CubeTensor {
    let ([rows, dim], [tokens, slots]) = (dims(part), dims(weights));
    if rows * dim * tokens * slots == 0 {
        return zeros(part, [rows, dim], part.dtype);
    }
    let dpart = empty(part, [rows, dim], part.dtype);
    let (client, vector) = (part.client.clone(), vector_size(part, dim));
    let (cubes, units) = per_element(&client, rows * dim / vector);
    kernel::part_gradient::launch(
        &client,
        cubes,
        units,
        vector,
        weights.clone().into_buffer_arg(),
        map.assignment_of.clone().into_buffer_arg(),
        grad.clone().into_buffer_arg(),
        dpart.clone().into_buffer_arg(),
        first,
        tokens,
        slots,
        dim / vector,
        storage(part),
    );
    dpart
}

/// The gradient of the weights: of each slot, its row times the gradient of its token.
fn weight_gradients(
    parts: &[CubeTensor],
    grad: &CubeTensor,
    map: &RowIds<CubeBackend>,
) -> CubeTensor {
    let ([tokens, slots], [_, dim]) = (dims(&map.row_of), dims(grad));
    let [rows] = dims(&map.assignment_of);
    if tokens * slots * rows * dim == 0 {
        return zeros(grad, [tokens, slots], grad.dtype);
    }
    let dweights = empty(grad, [tokens, slots], grad.dtype);
    let (client, vector) = (grad.client.clone(), vector_size(grad, dim));
    let (cubes, units) = per_row(&client, tokens * slots, dim / vector);
    kernel::weight_gradients::launch(
        &client,
        cubes,
        units,
        vector,
        filled(parts).map(CubeTensor::into_buffer_arg).collect(),
        starts(parts),
        map.row_of.clone().into_buffer_arg(),
        grad.clone().into_buffer_arg(),
        dweights.clone().into_buffer_arg(),
        rows,
        slots,
        dim / vector,
        units.num_elems() as usize,
        storage(grad),
    );
    dweights
}
