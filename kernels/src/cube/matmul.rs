use burn::tensor::DType;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;

use super::args::{dims, empty};

/// The products of one or more pairs of matrices, formed by `cubek`, as values of `dtype` in order
/// in memory; operands may be transposed views.
///
/// # Panics
/// If `cubek` has no kernel for these types on this device.
pub(crate) fn product<const D: usize>(
    lhs: CubeTensor,
    rhs: CubeTensor,
    dtype: DType,
) -> CubeTensor {
    let mut shape = dims::<D>(&lhs);
    shape[D - 1] = dims::<D>(&rhs)[D - 1];
    let out = empty(&lhs, shape, dtype);
    matmul(lhs, rhs, Some(out), MatmulStrategy::default(), dtype)
        .unwrap_or_else(|error| panic!("a product of {shape:?} as {}: {error:?}", dtype.name()))
}
