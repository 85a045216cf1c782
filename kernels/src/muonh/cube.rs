mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{MuonHKernel, MuonHNorm, MuonHOptions};
use crate::cube::{dims, floats, hyperball, per_element, reshaped, storage, unshared};
use crate::newton_schulz::NewtonSchulzKernel;

impl MuonHKernel for CubeBackend {
    fn step(
        w: CubeTensor,
        grad: CubeTensor,
        momentum: CubeTensor,
        options: &MuonHOptions,
    ) -> (CubeTensor, CubeTensor) {
        let [w, grad] = floats("muonh_step", [("w", w), ("grad", grad)]);
        // It may be stored in another type.
        let [momentum] = floats("muonh_step", [("momentum", momentum)]);
        let [n, p, q] = dims(&w);
        if n * p * q == 0 {
            return (w, momentum);
        }
        // The update takes the place of the gradient.
        let [update, momentum] = [grad, momentum].map(unshared);
        let client = w.client.clone();
        let (cubes, units) = per_element(&client, n * p * q);
        kernel::momentum::launch(
            &client,
            cubes,
            units,
            update.clone().into_buffer_arg(),
            momentum.clone().into_buffer_arg(),
            options.momentum as f32,
            n * p * q,
            [storage(&w), storage(&momentum)],
        );
        let [update] = floats("muonh_step", [("update", Self::forward(update, options.precision))]);
        let groups = match options.norm {
            MuonHNorm::PerMatrix => [n, p * q],
            MuonHNorm::Joint => [1, n * p * q],
        };
        let [w, update] = [w, update].map(|tensor| reshaped(tensor, groups));
        (reshaped(hyperball::step(w, update, options.lr), [n, p, q]), momentum)
    }
}
