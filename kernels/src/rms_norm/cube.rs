mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::RmsNormKernel;
use crate::cube::{
    ROW_BLOCK, dims, empty, floats, per_element, per_row, reshaped, storage, sum_rows, vector_size,
};

impl RmsNormKernel for CubeBackend {
    fn forward(x: CubeTensor, gain: CubeTensor, eps: f64) -> CubeTensor {
        let [x, gain] = floats("rms_norm", [("x", x), ("gain", gain)]);
        let ([rows, dim], client, dtype) = (dims(&x), x.client.clone(), storage(&x));
        let out = empty(&x, [rows, dim], x.dtype);
        if rows * dim > 0 {
            let vector = vector_size(&x, dim);
            let (cubes, units) = per_row(&client, rows, dim / vector);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                vector,
                x.into_buffer_arg(),
                gain.into_buffer_arg(),
                out.clone().into_buffer_arg(),
                dim / vector,
                eps as f32,
                units.num_elems() as usize,
                dtype,
            );
        }
        out
    }

    fn backward(
        x: CubeTensor,
        gain: CubeTensor,
        eps: f64,
        grad: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let [x, gain, grad] = floats("rms_norm", [("x", x), ("gain", gain), ("grad", grad)]);
        let ([rows, dim], client, dtype) = (dims(&x), x.client.clone(), storage(&x));
        let dx = empty(&x, [rows, dim], x.dtype);
        let inverse = empty(&x, [rows], DType::F32);
        let dgains = empty(&x, [1, rows.div_ceil(ROW_BLOCK), dim], DType::F32);
        if rows * dim > 0 {
            let vector = vector_size(&x, dim);
            let (cubes, units) = per_row(&client, rows, dim / vector);
            kernel::input_gradient::launch(
                &client,
                cubes,
                units,
                vector,
                x.clone().into_buffer_arg(),
                gain.clone().into_buffer_arg(),
                grad.clone().into_buffer_arg(),
                dx.clone().into_buffer_arg(),
                inverse.clone().into_buffer_arg(),
                dim / vector,
                eps as f32,
                units.num_elems() as usize,
                dtype,
            );
            let (cubes, units) = per_element(&client, dgains.meta.num_elements());
            kernel::gain_gradients::launch(
                &client,
                cubes,
                units,
                x.into_buffer_arg(),
                grad.into_buffer_arg(),
                inverse.into_buffer_arg(),
                dgains.clone().into_buffer_arg(),
                dim,
                ROW_BLOCK,
                dtype,
            );
        }
        (dx, reshaped(sum_rows(dgains, gain.dtype), [dim]))
    }
}
