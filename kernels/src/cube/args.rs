use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;

/// The float arguments of an operation by name, each in order in memory from its first value on.
///
/// # Panics
/// As [`float`].
pub(crate) fn floats<const N: usize>(
    op: &str,
    arguments: [(&str, CubeTensor); N],
) -> [CubeTensor; N] {
    let first = arguments[0].0;
    let dtype = arguments[0].1.dtype;
    arguments.map(|(name, tensor)| float(op, name, tensor, (first, dtype)))
}

/// A float argument, in order in memory from its first value on.
///
/// # Panics
/// Before anything is launched, if its type is neither f32 nor bf16, one that the device lacks or
/// not that of the argument `first`, or if it has more values than a kernel can count.
pub(crate) fn float(
    op: &str,
    name: &str,
    tensor: CubeTensor,
    (first, needed): (&str, DType),
) -> CubeTensor {
    let found = tensor.dtype.name();
    let is_known = matches!(tensor.dtype, DType::F32 | DType::BF16);
    assert!(is_known, "{op}: `{name}` is {found}, needed f32 or bf16");
    let has = tensor.client.properties().supports_type(storage(&tensor));
    assert!(has, "{op}: `{name}` is {found}, which this device lacks, needed f32");
    let agrees = tensor.dtype == needed;
    assert!(agrees, "{op}: `{name}` is {found}, needed {} as `{first}`", needed.name());
    countable(op, name, &tensor);
    into_contiguous(tensor)
}

/// An integer argument, in order in memory from its first value on.
///
/// # Panics
/// Before anything is launched, if it is not i32 or has more values than a kernel can count.
pub(crate) fn ids(op: &str, name: &str, tensor: CubeTensor) -> CubeTensor {
    let found = tensor.dtype.name();
    assert!(tensor.dtype == DType::I32, "{op}: `{name}` is {found}, needed i32");
    countable(op, name, &tensor);
    into_contiguous(tensor)
}

/// Kernels count values in u32.
fn countable(op: &str, name: &str, tensor: &CubeTensor) {
    let found = tensor.meta.num_elements();
    assert!(is_countable(found), "{op}: `{name}` has {found} values, needed less than 2^32");
}

fn is_countable(len: usize) -> bool {
    u32::try_from(len).is_ok()
}

/// The dimensions of a tensor.
pub(crate) fn dims<const D: usize>(tensor: &CubeTensor) -> [usize; D] {
    tensor.meta.shape().dims::<D>()
}

/// How a kernel names the type of a tensor's values.
pub(crate) fn storage(tensor: &CubeTensor) -> ElemType {
    dtype_to_storage_type(tensor.dtype)
}

/// A tensor beside `like` whose values are still to be written.
///
/// # Panics
/// If it has more values than a kernel can count.
pub(crate) fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    let shape = shape.into();
    let len = shape.num_elements();
    assert!(is_countable(len), "a result {shape:?} of {len} values, needed less than 2^32");
    let buffer = like.client.empty(len * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, buffer, dtype)
}

/// As [`empty`], with every value 0.
pub(crate) fn zeros(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    zeros_client(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// A contiguous tensor with other dimensions of as many values.
pub(crate) fn reshaped(tensor: CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let CubeTensor { client, device, handle, dtype, .. } = tensor;
    CubeTensor::new_contiguous(client, device, shape.into(), handle, dtype)
}

/// A contiguous tensor to be updated in place: the tensor itself where nothing else holds it, else
/// a copy.
pub(crate) fn unshared(tensor: CubeTensor) -> CubeTensor {
    if tensor.can_mut() { tensor } else { tensor.copy() }
}
