//! On GPUs: one kernel for each direction, written once for CUDA, Vulkan, Metal and DirectX 12.

mod kernel;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::CubeDim;

use super::SoftCapKernel;

impl SoftCapKernel for CubeBackend {
    fn forward(x: CubeTensor, cap: f32) -> CubeTensor {
        let x = checked("x", x);
        let (out, len, dtype) = (like(&x), x.meta.num_elements(), dtype_to_storage_type(x.dtype));
        if len > 0 {
            let client = x.client.clone();
            let units = CubeDim::new(&client, len);
            let cubes = calculate_cube_count_elemwise(&client, len, units);
            let (x, out) = (x.into_buffer_arg(), out.clone().into_buffer_arg());
            kernel::forward::launch(&client, cubes, units, x, out, cap, dtype);
        }
        out
    }

    fn backward(y: CubeTensor, dy: CubeTensor, cap: f32) -> CubeTensor {
        let (y, dy) = (checked("y", y), checked("dy", dy));
        let (dx, len, dtype) = (like(&y), y.meta.num_elements(), dtype_to_storage_type(y.dtype));
        if len > 0 {
            let client = y.client.clone();
            let units = CubeDim::new(&client, len);
            let cubes = calculate_cube_count_elemwise(&client, len, units);
            let (y, dy) = (y.into_buffer_arg(), dy.into_buffer_arg());
            let out = dx.clone().into_buffer_arg();
            kernel::backward::launch(&client, cubes, units, y, dy, out, cap, dtype);
        }
        dx
    }
}

/// In order in memory, and of a type that the kernels have: one they lack would fail on the
/// device's own thread, where nobody hears of it.
fn checked(name: &str, tensor: CubeTensor) -> CubeTensor {
    let found = tensor.dtype;
    let needed = matches!(found, DType::F32 | DType::BF16);
    assert!(needed, "soft_cap: `{name}` is {found:?}, needed F32 or BF16");
    into_contiguous(tensor)
}

/// A tensor of the same shape whose values are still to be written.
fn like(tensor: &CubeTensor) -> CubeTensor {
    let shape = tensor.meta.shape().clone();
    let buffer = tensor.client.empty(shape.num_elements() * tensor.dtype.size());
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    CubeTensor::new_contiguous(client, device, shape, buffer, tensor.dtype)
}
