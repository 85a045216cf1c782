mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{Parts, RouteKernel};
use crate::combine_weights::EPSILON;
use crate::cube::{dims, empty, floats, per_row, storage};
use crate::top_k::SCORES_PER_UNIT;

impl RouteKernel for CubeBackend {
    fn forward(logits: CubeTensor, bias: CubeTensor, k: usize, sum: f64) -> Parts<Self> {
        let [logits, bias] = floats("route", [("logits", logits), ("bias", bias)]);
        let ([t, e], client, dtype) = (dims(&logits), logits.client.clone(), storage(&logits));
        let selected = empty(&logits, [t, k], DType::I32);
        let weights = empty(&logits, [t, k], logits.dtype);
        let alpha = empty(&logits, [t], logits.dtype);
        if t > 0 {
            let (cubes, units) = per_row(&client, t, e / SCORES_PER_UNIT);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                logits.into_buffer_arg(),
                bias.into_buffer_arg(),
                selected.clone().into_buffer_arg(),
                weights.clone().into_buffer_arg(),
                alpha.clone().into_buffer_arg(),
                e,
                sum as f32,
                EPSILON as f32,
                f32::NAN,
                k,
                units.num_elems() as usize,
                dtype,
            );
        }
        (selected, weights, alpha)
    }
}
