use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::call::{Call, Placed, Upstream};
use super::heads::Heads;
use super::tiles;
use crate::attention::AttentionSaved;
use crate::cube::{empty, per_tile};

/// What happens to tiles of queries and keys.
impl Call<'_> {
    /// Writes `y` and the inverse sums.
    pub(super) fn attend(&self, placed: &Placed, saved: &AttentionSaved<CubeBackend>) {
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
            self.ranges.clone().into_buffer_arg(),
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

    /// The gradients of placed queries.
    pub(super) fn query_gradients(&self, placed: &Placed, upstream: &Upstream) -> CubeTensor {
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
            self.ranges.clone().into_buffer_arg(),
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
    pub(super) fn key_gradients(&self, placed: &Placed, upstream: &Upstream) -> CubeTensor {
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
            self.ranges.clone().into_buffer_arg(),
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
}
