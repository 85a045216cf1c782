use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::call::{Call, Placed, Upstream};
use super::heads::Heads;
use super::rows;
use crate::attention::AttentionSaved;
use crate::cube::{dims, empty, per_element, per_row};

/// What happens to single heads at single positions.
impl Call<'_> {
    pub(super) fn placed(&self) -> Placed {
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
    pub(super) fn pull_back(
        &self,
        x: &CubeTensor,
        placed: CubeTensor,
        grad: CubeTensor,
    ) -> CubeTensor {
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

    /// Writes the exclusive output of `y`.
    pub(super) fn exclude(&self, y: &CubeTensor, out: &CubeTensor) {
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

    pub(super) fn exclude_backward(
        &self,
        saved: &AttentionSaved<CubeBackend>,
        grad: CubeTensor,
    ) -> Upstream {
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

    /// Gradients of own heads as those of stored heads.
    pub(super) fn spread(&self, own: CubeTensor) -> CubeTensor {
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
