mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{CombineWeightsKernel, EPSILON};
use crate::cube::{dims, empty, floats, ids, per_element, per_row, storage, zeros};

impl CombineWeightsKernel for CubeBackend {
    fn forward(logits: CubeTensor, selected: CubeTensor, sum: f64) -> CubeTensor {
        let [logits] = floats("combine_weights", [("logits", logits)]);
        let selected = ids("combine_weights", "selected", selected);
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        if t * e * k == 0 {
            return zeros(&logits, [t, k], logits.dtype);
        }
        let out = empty(&logits, [t, k], logits.dtype);
        let (client, dtype) = (logits.client.clone(), storage(&logits));
        let (cubes, units) = per_element(&client, t * k);
        kernel::forward::launch(
            &client,
            cubes,
            units,
            logits.into_buffer_arg(),
            selected.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            e,
            k,
            sum as f32,
            EPSILON as f32,
            dtype,
        );
        out
    }

    fn backward(
        logits: CubeTensor,
        selected: CubeTensor,
        sum: f64,
        grad: CubeTensor,
    ) -> CubeTensor {
        let [logits, grad] = floats("combine_weights", [("logits", logits), ("grad", grad)]);
        let selected = ids("combine_weights", "selected", selected);
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        if t * e * k == 0 {
            return zeros(&logits, [t, e], logits.dtype);
        }
        let dlogits = empty(&logits, [t, e], logits.dtype);
        let (client, dtype) = (logits.client.clone(), storage(&logits));
        let (cubes, units) = per_row(&client, t, e);
        kernel::backward::launch(
            &client,
            cubes,
            units,
            logits.into_buffer_arg(),
            selected.into_buffer_arg(),
            grad.into_buffer_arg(),
            dlogits.clone().into_buffer_arg(),
            e,
            sum as f32,
            EPSILON as f32,
            k,
            units.num_elems() as usize,
            dtype,
        );
        dlogits
    }
}
