mod kernel;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::TensorData;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{Header, PackKernel};
use crate::cube::{dims, empty, floats, per_element, storage, vector_size};
use crate::permute::{PermuteKernel, RowIds};

impl PackKernel for CubeBackend {
    fn pack(x: CubeTensor, map: RowIds<Self>, header: &Header) -> CubeTensor {
        if header.values.is_empty() {
            return Self::dispatch(x, map);
        }
        let ([x], map) = (floats("pack_rows", [("x", x)]), map.contiguous("pack_rows"));
        let ([tokens, dim], [rows]) = (dims(&x), dims(&map.assignment_of));
        let [_, slots] = dims(&map.row_of);
        let out = empty(&x, [rows, dim], x.dtype);
        let values = TensorData::new(header.values.to_vec(), [header.parts * header.rows, dim]);
        let values = Self::float_from_data(values.convert_dtype(x.dtype), &x.device);
        let [values] = floats("pack_rows", [("header", values)]);
        let (client, dtype, vector) = (x.client.clone(), storage(&x), vector_size(&x, dim));
        let (cubes, units) = per_element(&client, rows * dim / vector);
        // Without tokens nothing of `x` is read, but a device has no empty buffers.
        let x = if tokens * slots == 0 { values.clone() } else { x };
        kernel::pack::launch(
            &client,
            cubes,
            units,
            vector,
            x.into_buffer_arg(),
            map.assignment_of.into_buffer_arg(),
            values.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            tokens,
            slots,
            rows / header.parts,
            header.rows,
            dim / vector,
            dtype,
        );
        out
    }
}
