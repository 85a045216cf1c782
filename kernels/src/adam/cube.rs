mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{AdamKernel, AdamOptions};
use crate::cube::{dims, floats, hyperball, per_element, reshaped, storage, unshared};
use kernel::CoefficientsLaunch;

impl AdamKernel for CubeBackend {
    fn step(tensors: [CubeTensor; 4], options: &AdamOptions) -> [CubeTensor; 3] {
        let [w, grad, m, v] = arguments("adam_step", tensors);
        let [w, m, v] = [w, m, v].map(unshared);
        let [len] = dims(&w);
        if len > 0 {
            let client = w.client.clone();
            let (cubes, units) = per_element(&client, len);
            kernel::step::launch(
                &client,
                cubes,
                units,
                w.clone().into_buffer_arg(),
                grad.into_buffer_arg(),
                m.clone().into_buffer_arg(),
                v.clone().into_buffer_arg(),
                coefficients(options),
                options.lr as f32,
                (options.lr * options.weight_decay) as f32,
                len,
                storage(&w),
            );
        }
        [w, m, v]
    }

    fn hyperball_step(tensors: [CubeTensor; 4], options: &AdamOptions) -> [CubeTensor; 3] {
        let [w, grad, m, v] = arguments("adamh_step", tensors);
        // The direction takes the place of the gradient.
        let [direction, m, v] = [grad, m, v].map(unshared);
        let [len] = dims(&w);
        if len > 0 {
            let client = w.client.clone();
            let (cubes, units) = per_element(&client, len);
            kernel::direction::launch(
                &client,
                cubes,
                units,
                direction.clone().into_buffer_arg(),
                m.clone().into_buffer_arg(),
                v.clone().into_buffer_arg(),
                coefficients(options),
                len,
                storage(&w),
            );
        }
        let [w, direction] = [w, direction].map(|tensor| reshaped(tensor, [1, len]));
        [reshaped(hyperball::step(w, direction, options.lr), [len]), m, v]
    }
}

fn arguments(op: &str, [w, grad, m, v]: [CubeTensor; 4]) -> [CubeTensor; 4] {
    floats(op, [("w", w), ("grad", grad), ("m", m), ("v", v)])
}

/// The factors of one step, rounded to f32 once.
fn coefficients(options: &AdamOptions) -> CoefficientsLaunch {
    let (first, second) = options.bias_corrections();
    CoefficientsLaunch::new(
        options.beta1 as f32,
        options.beta2 as f32,
        (1.0 - options.beta1) as f32,
        (1.0 - options.beta2) as f32,
        first as f32,
        second as f32,
        options.eps as f32,
    )
}
