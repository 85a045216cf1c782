mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{Parts, RoutingStatisticsKernel};
use crate::cube::{dims, empty, floats, ids, per_row, storage};

/// Blocks of tokens, so that what the host reads grows with the experts alone.
const MOST_BLOCKS: usize = 64;

/// Tokens that a cube adds up at least, one after the other.
const LEAST_TOKENS: usize = 16;

impl RoutingStatisticsKernel for CubeBackend {
    fn forward(
        logits: CubeTensor,
        selected: CubeTensor,
        alpha: CubeTensor,
        token_valid: CubeTensor,
    ) -> Parts<Self> {
        let [logits, alpha] = floats("routing_statistics", [("logits", logits), ("alpha", alpha)]);
        let selected = ids("routing_statistics", "selected", selected);
        let token_valid = ids("routing_statistics", "token_valid", token_valid);
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        let block = LEAST_TOKENS.max(t.div_ceil(MOST_BLOCKS));
        let blocks = t.div_ceil(block);
        let counts = empty(&logits, [blocks, e + 1], DType::I32);
        let sums = empty(&logits, [blocks, e + 1], DType::F32);
        let bounds = empty(&logits, [blocks, 2], DType::F32);
        if blocks > 0 {
            let (client, dtype) = (logits.client.clone(), storage(&logits));
            let (cubes, units) = per_row(&client, blocks, e);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                logits.into_buffer_arg(),
                selected.into_buffer_arg(),
                alpha.into_buffer_arg(),
                token_valid.into_buffer_arg(),
                counts.clone().into_buffer_arg(),
                sums.clone().into_buffer_arg(),
                bounds.clone().into_buffer_arg(),
                t,
                e,
                k,
                block,
                f32::NEG_INFINITY,
                f32::NAN,
                units.num_elems() as usize,
                dtype,
            );
        }
        (counts, sums, bounds)
    }
}
