//! The GPU kernel: memory grows with s, never with its square.
//!
//! `cubek`'s attention is no help here: it takes its mask as a whole [s, s] matrix, knows neither
//! window nor grouped heads, and its forward keeps nothing for its backward.

mod heads;
mod rows;
mod tiles;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::ElemType;

use self::heads::Heads;
use super::{AttentionInputs, AttentionKernel, AttentionOptions, AttentionSaved};
use crate::cube::tile::SIDE;
use crate::cube::{
    dims, empty, float, floats, ids, per_element, per_row, per_tile, storage, zeros,
};

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

/// The inputs in order in memory, and what all kernels of a call share.
struct Call<'a> {
    client: Client,
    dtype: ElemType,
    options: &'a AttentionOptions,
    heads: Heads,
    b: usize,
    s: usize,
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    segments: CubeTensor,
    /// Cosine and sine [s, a / 4, 2]; one value that nothing reads if nothing is rotated.
    turns: CubeTensor,
}

/// Normalised and rotated queries [b, s, h, a] and keys of own heads [b, s, own, a], in f32.
struct Placed {
    q: CubeTensor,
    k: CubeTensor,
}

/// Gradients of `y = P v` in f32, and what they need beside the inputs.
struct Upstream {
    dy: CubeTensor,
    /// Those of values of own heads [b, s, own, a], at first of the exclusive step alone.
    dv: CubeTensor,
    /// One over the sum of the weights, and `dy y` [b, s, h, 2].
    of_rows: CubeTensor,
}

impl<'a> Call<'a> {
    fn new(inputs: AttentionInputs<CubeBackend>, options: &'a AttentionOptions) -> Self {
        let AttentionInputs { q, k, v, segment_ids } = inputs;
        let [q, k, v] = floats(OP, [("q", q), ("k", k), ("v", v)]);
        let segments = ids(OP, "segment_ids", segment_ids);
        let ([b, s, h, a], [_, _, j, _]) = (dims(&q), dims(&k));
        let heads = Heads { h, j, own: options.own_kv_heads, a };
        let mut turns: Vec<f32> = options.rotary_table(s, a).into_iter().flatten().collect();
        if turns.is_empty() {
            turns.push(0.0);
        }
        let len = turns.len();
        let turns = CubeBackend::float_from_data(TensorData::new(turns, [len]), &q.device);
        let (client, dtype) = (q.client.clone(), storage(&q));
        let shared = client.properties().hardware.max_shared_memory_size;
        let needed = tiles::SHARED_BYTES;
        assert!(
            shared >= needed,
            "{OP}: units of this device share {shared} bytes, needed {needed}"
        );
        Self { client, dtype, options, heads, b, s, q, k, v, segments, turns }
    }

    /// Positions of all rows of the batch.
    fn rows(&self) -> usize {
        self.b * self.s
    }

    /// Tiles of all rows of the batch.
    fn tiles(&self) -> usize {
        self.b * self.s.div_ceil(SIDE)
    }

    fn window(&self) -> usize {
        self.options.window.map_or(self.s, |window| window.min(self.s))
    }

    /// What turns `q k` into a score.
    fn scale(&self) -> f32 {
        (self.options.qk_mult / (self.heads.a as f64).sqrt()) as f32
    }

    /// The least and the largest segment id of every tile.
    fn ranges(&self) -> CubeTensor {
        let ranges = empty(&self.segments, [self.tiles(), 2], DType::I32);
        let (count, units) = per_element(&self.client, self.tiles());
        heads::ranges::launch(
            &self.client,
            count,
            units,
            self.segments.clone().into_buffer_arg(),
            ranges.clone().into_buffer_arg(),
            self.s,
            self.tiles(),
        );
        ranges
    }

    fn placed(&self) -> Placed {
        let Heads { h, own, .. } = self.heads;
        Placed { q: self.place(&self.q, h), k: self.place(&self.k, own) }
    }

    fn place(&self, x: &CubeTensor, kept: usize) -> CubeTensor {
        let [b, s, stored, a] = dims(x);
        let placed = empty(x, [b, s, kept, a], DType::F32);
        let (count, units) = per_row(&self.client, self.rows() * kept, a);
        rows::place::launch(
            &self.client,
            count,
            units,
            x.clone().into_buffer_arg(),
            self.turns.clone().into_buffer_arg(),
            placed.clone().into_buffer_arg(),
            s,
            self.rows(),
            self.options.norm_eps as f32,
            stored,
            kept,
            a,
            self.options.rope_base.is_some(),
            units.num_elems() as usize,
            self.dtype,
        );
        placed
    }

    /// The gradient of `x` for that of what was placed of it.
    fn pull_back(&self, x: &CubeTensor, placed: CubeTensor, grad: CubeTensor) -> CubeTensor {
        let ([b, s, stored, a], [_, _, kept, _]) = (dims(x), dims(&placed));
        let dx = empty(x, [b, s, stored, a], x.dtype);
        let (count, units) = per_row(&self.client, self.rows() * stored, a);
        rows::pull_back::launch(
            &self.client,
            count,
            units,
            x.clone().into_buffer_arg(),
            placed.into_buffer_arg(),
            grad.into_buffer_arg(),
            self.turns.clone().into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            s,
            self.rows(),
            self.options.norm_eps as f32,
            stored,
            kept,
            a,
            self.options.rope_base.is_some(),
            units.num_elems() as usize,
            self.dtype,
        );
        dx
    }

    /// Writes `y` and the inverse sums.
    fn attend(&self, placed: &Placed, saved: &AttentionSaved<CubeBackend>) {
        let cubes = self.tiles() * self.heads.h;
        let (count, units) = per_tile(&self.client, cubes);
        tiles::attend::launch(
            &self.client,
            count,
            units,
            placed.q.clone().into_buffer_arg(),
            placed.k.clone().into_buffer_arg(),
            self.v.clone().into_buffer_arg(),
            self.segments.clone().into_buffer_arg(),
            self.ranges().into_buffer_arg(),
            saved.y.clone().into_buffer_arg(),
            saved.inverse_sum.clone().into_buffer_arg(),
            self.s,
            self.window(),
            self.scale(),
            cubes,
            self.heads,
            self.dtype,
        );
    }

    /// Writes the exclusive output of `y`.
    fn exclude(&self, y: &CubeTensor, out: &CubeTensor) {
        let Heads { h, a, .. } = self.heads;
        let (count, units) = per_row(&self.client, self.rows() * h, a);
        rows::exclude::launch(
            &self.client,
            count,
            units,
            y.clone().into_buffer_arg(),
            self.v.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            self.rows(),
            self.options.exclusive_eps as f32,
            self.heads,
            units.num_elems() as usize,
            self.dtype,
        );
    }

    fn exclude_backward(&self, saved: &AttentionSaved<CubeBackend>, grad: CubeTensor) -> Upstream {
        let Heads { h, own, a, .. } = self.heads;
        let new = |heads, len| empty(&self.q, [self.b, self.s, heads, len], DType::F32);
        let upstream = Upstream { dy: new(h, a), dv: new(own, a), of_rows: new(h, 2) };
        let (count, units) = per_row(&self.client, self.rows() * own, a);
        rows::exclude_backward::launch(
            &self.client,
            count,
            units,
            saved.y.clone().into_buffer_arg(),
            self.v.clone().into_buffer_arg(),
            grad.into_buffer_arg(),
            saved.inverse_sum.clone().into_buffer_arg(),
            upstream.dy.clone().into_buffer_arg(),
            upstream.dv.clone().into_buffer_arg(),
            upstream.of_rows.clone().into_buffer_arg(),
            self.rows(),
            self.options.exclusive_eps as f32,
            self.heads,
            units.num_elems() as usize,
            self.dtype,
        );
        upstream
    }

    /// The gradients of placed queries.
    fn query_gradients(&self, placed: &Placed, upstream: &Upstream) -> CubeTensor {
        let Heads { h, a, .. } = self.heads;
        let dq = empty(&self.q, [self.b, self.s, h, a], DType::F32);
        let cubes = self.tiles() * h;
        let (count, units) = per_tile(&self.client, cubes);
        tiles::query_gradients::launch(
            &self.client,
            count,
            units,
            placed.q.clone().into_buffer_arg(),
            placed.k.clone().into_buffer_arg(),
            self.v.clone().into_buffer_arg(),
            upstream.dy.clone().into_buffer_arg(),
            upstream.of_rows.clone().into_buffer_arg(),
            self.segments.clone().into_buffer_arg(),
            self.ranges().into_buffer_arg(),
            dq.clone().into_buffer_arg(),
            self.s,
            self.window(),
            self.scale(),
            cubes,
            self.heads,
            self.dtype,
        );
        dq
    }

    /// The gradients of placed keys; adds to those of values.
    fn key_gradients(&self, placed: &Placed, upstream: &Upstream) -> CubeTensor {
        let Heads { own, a, .. } = self.heads;
        let dk = empty(&self.q, [self.b, self.s, own, a], DType::F32);
        let cubes = self.tiles() * own;
        let (count, units) = per_tile(&self.client, cubes);
        tiles::key_gradients::launch(
            &self.client,
            count,
            units,
            placed.q.clone().into_buffer_arg(),
            placed.k.clone().into_buffer_arg(),
            self.v.clone().into_buffer_arg(),
            upstream.dy.clone().into_buffer_arg(),
            upstream.of_rows.clone().into_buffer_arg(),
            self.segments.clone().into_buffer_arg(),
            self.ranges().into_buffer_arg(),
            dk.clone().into_buffer_arg(),
            upstream.dv.clone().into_buffer_arg(),
            self.s,
            self.window(),
            self.scale(),
            cubes,
            self.heads,
            self.dtype,
        );
        dk
    }

    /// Gradients of own heads as those of stored heads.
    fn spread(&self, own: CubeTensor) -> CubeTensor {
        let Heads { j, a, .. } = self.heads;
        let stored = empty(&self.v, [self.b, self.s, j, a], self.v.dtype);
        let len = stored.meta.num_elements();
        let (count, units) = per_element(&self.client, len);
        rows::spread::launch(
            &self.client,
            count,
            units,
            own.into_buffer_arg(),
            stored.clone().into_buffer_arg(),
            len,
            self.heads,
            self.dtype,
        );
        stored
    }
}
