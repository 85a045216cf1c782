pub(super) mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::TopKKernel;
use crate::cube::{dims, empty, floats, per_row, storage};

/// Scores that a unit looks through in each round.
pub(crate) const SCORES_PER_UNIT: usize = 8;

impl TopKKernel for CubeBackend {
    fn forward(scores: CubeTensor, k: usize) -> (CubeTensor, CubeTensor) {
        let [scores] = floats("top_k", [("scores", scores)]);
        let ([t, e], client, dtype) = (dims(&scores), scores.client.clone(), storage(&scores));
        let selected = empty(&scores, [t, k], DType::I32);
        let next = empty(&scores, [t], scores.dtype);
        if t > 0 {
            let (cubes, units) = per_row(&client, t, e / SCORES_PER_UNIT);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                scores.into_buffer_arg(),
                selected.clone().into_buffer_arg(),
                next.clone().into_buffer_arg(),
                e,
                k,
                f32::NAN,
                units.num_elems() as usize,
                dtype,
            );
        }
        (selected, next)
    }
}
