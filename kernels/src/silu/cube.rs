mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::SiluKernel;
use crate::cube::{dims, empty, floats, per_element, storage, vector_size};

impl SiluKernel for CubeBackend {
    fn forward(x: CubeTensor) -> CubeTensor {
        let [x] = floats("silu", [("x", x)]);
        let [rows, dim] = dims(&x);
        let out = empty(&x, [rows, dim], x.dtype);
        if rows * dim > 0 {
            let (client, dtype) = (x.client.clone(), storage(&x));
            let vector = vector_size(&x, rows * dim);
            let (cubes, units) = per_element(&client, rows * dim / vector);
            let (x, to) = (x.into_buffer_arg(), out.clone().into_buffer_arg());
            kernel::forward::launch(&client, cubes, units, vector, x, to, dtype);
        }
        out
    }

    fn backward(x: CubeTensor, grad: CubeTensor) -> CubeTensor {
        let [x, grad] = floats("silu", [("x", x), ("grad", grad)]);
        let [rows, dim] = dims(&x);
        let dx = empty(&x, [rows, dim], x.dtype);
        if rows * dim > 0 {
            let (client, dtype) = (x.client.clone(), storage(&x));
            let vector = vector_size(&x, rows * dim);
            let (cubes, units) = per_element(&client, rows * dim / vector);
            let [x, grad] = [x, grad].map(CubeTensor::into_buffer_arg);
            let to = dx.clone().into_buffer_arg();
            kernel::backward::launch(&client, cubes, units, vector, x, grad, to, dtype);
        }
        dx
    }
}
