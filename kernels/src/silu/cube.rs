mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::SiluKernel;
use crate::cube::{dims, empty, floats, per_element, storage};

impl SiluKernel for CubeBackend {
    fn forward(x: CubeTensor) -> CubeTensor {
        let [x] = floats("silu", [("x", x)]);
        let out = empty(&x, dims::<2>(&x), x.dtype);
        let len = out.meta.num_elements();
        if len > 0 {
            let (client, dtype) = (x.client.clone(), storage(&x));
            let (cubes, units) = per_element(&client, len);
            let (x, out) = (x.into_buffer_arg(), out.clone().into_buffer_arg());
            kernel::forward::launch(&client, cubes, units, x, out, dtype);
        }
        out
    }

    fn backward(x: CubeTensor, grad: CubeTensor) -> CubeTensor {
        let [x, grad] = floats("silu", [("x", x), ("grad", grad)]);
        let dx = empty(&x, dims::<2>(&x), x.dtype);
        let len = dx.meta.num_elements();
        if len > 0 {
            let (client, dtype) = (x.client.clone(), storage(&x));
            let (cubes, units) = per_element(&client, len);
            let (x, grad) = (x.into_buffer_arg(), grad.into_buffer_arg());
            let to = dx.clone().into_buffer_arg();
            kernel::backward::launch(&client, cubes, units, x, grad, to, dtype);
        }
        dx
    }
}
