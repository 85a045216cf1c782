mod kernel;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;
use half::bf16;

use super::{COEFFICIENTS, NORM_EPS, NewtonSchulzKernel, Precision};
use crate::cube::{
    dims, empty, floats, per_element, per_row, product, storage, sum_rows, vector_size,
};

const OP: &str = "newton_schulz";

/// Values whose squares a cube adds up.
const BLOCK: usize = 1 << 12;

impl NewtonSchulzKernel for CubeBackend {
    /// Products by `cubek`; what lies between them is one kernel each.
    fn forward(u: CubeTensor, precision: Precision) -> CubeTensor {
        let [n, p, q] = dims(&u);
        let dtype = dtype(&u, precision);
        let is_tall = p > q;
        let [u] = floats(OP, [("u", if is_tall { transposed(u) } else { u })]);
        let x = if n * p * q > 0 { orthogonal(&u, dtype) } else { u };
        let x = cast(x, DType::F32);
        if is_tall { transposed(x) } else { x }
    }
}

/// The type of operands and results of the steps.
///
/// # Panics
/// If the device lacks it.
fn dtype(u: &CubeTensor, precision: Precision) -> DType {
    let dtype = match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
    };
    let has = u.client.properties().supports_type(dtype_to_storage_type(dtype));
    assert!(has, "{OP}: `precision` is {precision:?}, which this device lacks, needed F32");
    dtype
}

fn orthogonal(u: &CubeTensor, dtype: DType) -> CubeTensor {
    let mut x = normalised(u, dtype);
    for (a, b, c) in COEFFICIENTS {
        let gram = product::<3>(x.clone(), transposed(x.clone()), dtype);
        let squared = product::<3>(gram.clone(), gram.clone(), dtype);
        let polynomial = add(squared, c, gram, b);
        x = add(product::<3>(polynomial, x.clone(), dtype), 1.0, x, a);
    }
    x
}

/// Each matrix over its norm, as values of `dtype`.
fn normalised(u: &CubeTensor, dtype: DType) -> CubeTensor {
    let [n, p, q] = dims(u);
    let (client, len) = (u.client.clone(), p * q);
    let blocks = len.div_ceil(BLOCK);
    let squares = empty(u, [n, blocks, 1], DType::F32);
    let (cubes, units) = per_row(&client, n * blocks, BLOCK);
    kernel::squares::launch(
        &client,
        cubes,
        units,
        u.clone().into_buffer_arg(),
        squares.clone().into_buffer_arg(),
        len,
        BLOCK,
        units.num_elems() as usize,
        storage(u),
    );
    let x = empty(u, [n, p, q], dtype);
    let vector = vector_size(u, len);
    let (cubes, units) = per_element(&client, n * len / vector);
    kernel::divide::launch(
        &client,
        cubes,
        units,
        vector,
        u.clone().into_buffer_arg(),
        sum_rows(squares, DType::F32).into_buffer_arg(),
        x.clone().into_buffer_arg(),
        len / vector,
        NORM_EPS as f32,
        [storage(u), storage(&x)],
    );
    x
}

/// `alpha out + beta other`, in place of `out`, which nothing else holds.
fn add(out: CubeTensor, alpha: f64, other: CubeTensor, beta: f64) -> CubeTensor {
    let (client, dtype, len) = (out.client.clone(), storage(&out), out.meta.num_elements());
    let rounded = |factor: f64| match out.dtype {
        DType::BF16 => bf16::from_f64(factor).to_f32(),
        _ => factor as f32,
    };
    let vector = vector_size(&out, len);
    let (cubes, units) = per_element(&client, len / vector);
    kernel::add::launch(
        &client,
        cubes,
        units,
        vector,
        out.clone().into_buffer_arg(),
        other.into_buffer_arg(),
        rounded(alpha),
        rounded(beta),
        len / vector,
        dtype,
    );
    out
}

fn transposed(x: CubeTensor) -> CubeTensor {
    CubeBackend::float_swap_dims(x, 1, 2)
}
