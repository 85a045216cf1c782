mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::ShortConvKernel;
use crate::cube::{
    ROW_BLOCK, dims, empty, floats, ids, per_element, reshaped, storage, sum_rows, vector_size,
};

impl ShortConvKernel for CubeBackend {
    fn forward(x: CubeTensor, weight: CubeTensor, segment_ids: CubeTensor) -> CubeTensor {
        let [x, weight] = floats("short_conv", [("x", x), ("weight", weight)]);
        let segment_ids = ids("short_conv", "segment_ids", segment_ids);
        let ([b, s, d], [taps, _]) = (dims(&x), dims(&weight));
        let out = empty(&x, [b, s, d], x.dtype);
        if b * s * d > 0 {
            let (client, dtype, vector) = (x.client.clone(), storage(&x), vector_size(&x, d));
            let (cubes, units) = per_element(&client, b * s * d / vector);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                vector,
                x.into_buffer_arg(),
                weight.into_buffer_arg(),
                segment_ids.into_buffer_arg(),
                out.clone().into_buffer_arg(),
                s,
                d / vector,
                taps,
                dtype,
            );
        }
        out
    }

    fn backward(
        x: CubeTensor,
        weight: CubeTensor,
        segment_ids: CubeTensor,
        grad: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let [x, weight, grad] =
            floats("short_conv", [("x", x), ("weight", weight), ("grad", grad)]);
        let segment_ids = ids("short_conv", "segment_ids", segment_ids);
        let dx = input_gradient(&weight, &segment_ids, &grad);
        (dx, weight_gradient(&x, &weight, &segment_ids, &grad))
    }
}

fn input_gradient(weight: &CubeTensor, segment_ids: &CubeTensor, grad: &CubeTensor) -> CubeTensor {
    let ([b, s, d], [taps, _]) = (dims(grad), dims(weight));
    let dx = empty(grad, [b, s, d], grad.dtype);
    if b * s * d > 0 {
        let (client, vector) = (grad.client.clone(), vector_size(grad, d));
        let (cubes, units) = per_element(&client, b * s * d / vector);
        kernel::input_gradient::launch(
            &client,
            cubes,
            units,
            vector,
            weight.clone().into_buffer_arg(),
            segment_ids.clone().into_buffer_arg(),
            grad.clone().into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            s,
            d / vector,
            taps,
            storage(grad),
        );
    }
    dx
}

fn weight_gradient(
    x: &CubeTensor,
    weight: &CubeTensor,
    segment_ids: &CubeTensor,
    grad: &CubeTensor,
) -> CubeTensor {
    let ([b, s, d], [taps, _]) = (dims(grad), dims(weight));
    let parts = empty(grad, [1, (b * s).div_ceil(ROW_BLOCK), taps * d], DType::F32);
    if b * s * d > 0 {
        let client = grad.client.clone();
        let (cubes, units) = per_element(&client, parts.meta.num_elements());
        kernel::weight_gradients::launch(
            &client,
            cubes,
            units,
            x.clone().into_buffer_arg(),
            segment_ids.clone().into_buffer_arg(),
            grad.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            b * s,
            s,
            d,
            taps,
            ROW_BLOCK,
            storage(grad),
        );
    }
    reshaped(sum_rows(parts, weight.dtype), [taps, d])
}
