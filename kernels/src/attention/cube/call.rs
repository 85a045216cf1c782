use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::ElemType;

use super::heads::{self, Heads};
use super::{OP, tiles};
use crate::attention::{AttentionInputs, AttentionOptions};
use crate::cube::tile::SIDE;
use crate::cube::{dims, empty, floats, ids, per_element, storage};

/// The inputs in order in memory, and what all kernels of a call share.
pub(super) struct Call<'a> {
    pub(super) client: Client,
    pub(super) dtype: ElemType,
    pub(super) options: &'a AttentionOptions,
    pub(super) heads: Heads,
    pub(super) b: usize,
    pub(super) s: usize,
    pub(super) q: CubeTensor,
    pub(super) k: CubeTensor,
    pub(super) v: CubeTensor,
    pub(super) segments: CubeTensor,
    /// See [`turns`].
    pub(super) turns: CubeTensor,
    /// See [`ranges`].
    pub(super) ranges: CubeTensor,
}

/// Normalised and rotated queries [b, s, h, a] and keys of own heads [b, s, own, a], in f32.
pub(super) struct Placed {
    pub(super) q: CubeTensor,
    pub(super) k: CubeTensor,
}

/// Gradients of `y = P v` in f32, and what they need beside the inputs.
pub(super) struct Upstream {
    pub(super) dy: CubeTensor,
    /// Those of values of own heads [b, s, own, a], at first of the exclusive step alone.
    pub(super) dv: CubeTensor,
    /// One over the sum of the weights, and `dy y` [b, s, h, 2].
    pub(super) of_rows: CubeTensor,
}

impl<'a> Call<'a> {
    pub(super) fn new(inputs: AttentionInputs<CubeBackend>, options: &'a AttentionOptions) -> Self {
        let AttentionInputs { q, k, v, segment_ids } = inputs;
        let [q, k, v] = floats(OP, [("q", q), ("k", k), ("v", v)]);
        let segments = ids(OP, "segment_ids", segment_ids);
        let ([b, s, h, a], [_, _, j, _]) = (dims(&q), dims(&k));
        let heads = Heads { h, j, own: options.own_kv_heads, a };
        let (client, dtype) = (q.client.clone(), storage(&q));
        let shared = client.properties().hardware.max_shared_memory_size;
        let needed = tiles::SHARED_BYTES;
        assert!(
            shared >= needed,
            "{OP}: units of this device share {shared} bytes, needed {needed}"
        );
        let (turns, ranges) = (turns(options, s, &q), ranges(&segments));
        Self { client, dtype, options, heads, b, s, q, k, v, segments, turns, ranges }
    }

    /// Positions of all rows of the batch.
    pub(super) fn rows(&self) -> usize {
        self.b * self.s
    }

    /// Tiles of all rows of the batch.
    pub(super) fn tiles(&self) -> usize {
        self.b * self.s.div_ceil(SIDE)
    }

    pub(super) fn window(&self) -> usize {
        self.options.window.map_or(self.s, |window| window.min(self.s))
    }

    /// What turns `q k` into a score.
    pub(super) fn scale(&self) -> f32 {
        (self.options.qk_mult / (self.heads.a as f64).sqrt()) as f32
    }
}

/// The least and the largest of the segment ids [b, s] of every tile.
fn ranges(segments: &CubeTensor) -> CubeTensor {
    let [b, s] = dims(segments);
    let tiles = b * s.div_ceil(SIDE);
    let ranges = empty(segments, [tiles, 2], DType::I32);
    if tiles > 0 {
        let (count, units) = per_element(&segments.client, tiles);
        heads::ranges::launch(
            &segments.client,
            count,
            units,
            segments.clone().into_buffer_arg(),
            ranges.clone().into_buffer_arg(),
            s,
            tiles,
        );
    }
    ranges
}

/// Cosine and sine of all pairs at the positions of a tile, and then at the first positions of all
/// tiles: any position is the sum of one of each. One value that nothing reads if nothing is
/// rotated.
///
/// A table of all positions would take the host longer than the device takes to attend.
fn turns(options: &AttentionOptions, s: usize, q: &CubeTensor) -> CubeTensor {
    let [.., a] = dims::<4>(q);
    let positions = (0..SIDE).chain((0..s).step_by(SIDE));
    let mut turns: Vec<f32> = options.rotary_table(positions, a).into_iter().flatten().collect();
    if turns.is_empty() {
        turns.push(0.0);
    }
    let len = turns.len();
    CubeBackend::float_from_data(TensorData::new(turns, [len]), &q.device)
}
