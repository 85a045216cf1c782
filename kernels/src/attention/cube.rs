//! The GPU kernel: memory grows with s, never with its square.
//!
//! `cubek`'s attention is no help here: it takes its mask as a whole [s, s] matrix, knows neither
//! window nor grouped heads, and its forward keeps nothing for its backward.

mod call;
mod heads;
mod launch_rows;
mod launch_tiles;
mod rows;
mod tiles;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use self::call::Call;
use self::heads::Heads;
use super::{AttentionInputs, AttentionKernel, AttentionOptions, AttentionSaved};
use crate::cube::{empty, float, zeros};

const OP: &str = "attention";

impl AttentionKernel for CubeBackend {
    fn forward(inputs: AttentionInputs<Self>, options: &AttentionOptions) -> CubeTensor {
        Self::forward_saving(inputs, options).0
    }

    fn forward_saving(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
    ) -> (CubeTensor, Option<AttentionSaved<Self>>) {
        let call = Call::new(inputs, options);
        let Heads { h, a, .. } = call.heads;
        let y = empty(&call.q, [call.b, call.s, h, a], call.q.dtype);
        let inverse_sum = empty(&call.q, [call.b, call.s, h], DType::F32);
        let out = empty(&call.q, [call.b, call.s, h, a], call.q.dtype);
        let saved = AttentionSaved { y, inverse_sum };
        if call.rows() * h * a > 0 {
            let placed = call.placed();
            call.attend(&placed, &saved);
            call.exclude(&saved.y, &out);
        }
        (out, Some(saved))
    }

    fn backward(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
        saved: Option<AttentionSaved<Self>>,
        grad: CubeTensor,
    ) -> [CubeTensor; 3] {
        let call = Call::new(inputs, options);
        let grad = float(OP, "grad", grad, ("q", call.q.dtype));
        let Heads { h, j, a, .. } = call.heads;
        if call.rows() * h * a == 0 {
            return [h, j, j].map(|heads| zeros(&call.q, [call.b, call.s, heads, a], call.q.dtype));
        }
        let saved = saved.expect("forward saves");
        let placed = call.placed();
        let upstream = call.exclude_backward(&saved, grad);
        let dq = call.query_gradients(&placed, &upstream);
        let dk = call.key_gradients(&placed, &upstream);
        [
            call.pull_back(&call.q, placed.q, dq),
            call.pull_back(&call.k, placed.k, dk),
            call.spread(upstream.dv),
        ]
    }
}
