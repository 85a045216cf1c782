//! Slices in and out of Flex tensors, the CPU backend.

use std::borrow::Cow;

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Shape};
use half::bf16;

use crate::bf16::Stored;

/// A tensor whose elements lie in order from offset 0: free where that holds already.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
}

/// The elements of a contiguous f32 tensor, the one type the CPU kernels compute in.
pub(crate) fn floats(tensor: &FlexTensor) -> &[f32] {
    assert_eq!(tensor.dtype(), DType::F32, "CPU kernels compute in f32");
    tensor.as_slice::<f32>().expect("a contiguous tensor")
}

/// The elements of a contiguous bf16 tensor, for kernels that compute in f32 on what is stored.
pub(crate) fn halves(tensor: &FlexTensor) -> &[bf16] {
    tensor.as_slice::<bf16>().expect("a contiguous bf16 tensor")
}

/// The elements of an integer tensor, whatever its width; Flex's default is i32.
pub(crate) fn integers(tensor: FlexTensor) -> Vec<i32> {
    integers_of(&contiguous(tensor)).into_owned()
}

/// The elements of a contiguous integer tensor, where they lie if they are i32.
pub(crate) fn integers_of(tensor: &FlexTensor) -> Cow<'_, [i32]> {
    match tensor.dtype() {
        DType::I32 => Cow::Borrowed(tensor.as_slice::<i32>().expect("contiguous")),
        DType::I64 => {
            let wide = tensor.as_slice::<i64>().expect("contiguous");
            wide.iter().map(|&v| i32::try_from(v).expect("an index below 2^31")).collect()
        }
        other => panic!("indices are i32 or i64, found {other:?}"),
    }
}

/// The chosen experts of an operation, each -1 for none or one of `num_experts`.
pub(crate) fn expert_ids(op: &str, selected: FlexTensor, num_experts: usize) -> Vec<i32> {
    let selected = integers(selected);
    for (index, &id) in selected.iter().enumerate() {
        assert!(
            id >= -1 && i64::from(id) < num_experts as i64,
            "{op}: `selected[{index}]` is {id}, needed -1 to {}",
            num_experts as i64 - 1
        );
    }
    selected
}

/// The dimensions of a tensor.
pub(crate) fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    tensor.layout().shape().dims::<D>()
}

/// A contiguous f32 tensor that owns `values`.
pub(crate) fn float_tensor(values: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), DType::F32)
}

/// A contiguous bf16 tensor that owns `values`.
pub(crate) fn half_tensor(values: Vec<bf16>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), DType::BF16)
}

/// A contiguous i32 tensor that owns `values`.
pub(crate) fn int_tensor(values: Vec<i32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), DType::I32)
}

/// A contiguous f32 tensor that nothing else holds, to be updated in place: the tensor itself where
/// that is so already, else a copy.
pub(crate) fn unshared(tensor: FlexTensor) -> FlexTensor {
    unshared_of::<f32>(tensor)
}

/// The elements of an [`unshared`] tensor.
pub(crate) fn floats_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    elements_mut(tensor)
}

/// [`unshared`] for elements of any type.
pub(crate) fn unshared_of<E: Stored>(tensor: FlexTensor) -> FlexTensor {
    let tensor = contiguous(tensor);
    if tensor.is_unique() {
        return tensor;
    }
    assert_eq!(tensor.dtype(), E::dtype(), "the type of a tensor that is updated");
    let values = tensor.as_slice::<E>().expect("a contiguous tensor").to_vec();
    let layout = Layout::contiguous(tensor.layout().shape().clone());
    FlexTensor::new(Bytes::from_elems(values), layout, E::dtype())
}

/// The elements of a tensor from [`unshared_of`].
pub(crate) fn elements_mut<E: Stored>(tensor: &mut FlexTensor) -> &mut [E] {
    let len = tensor.layout().num_elements();
    let values = tensor.try_storage_mut::<E>().expect("an unshared tensor");
    assert_eq!(values.len(), len, "a buffer that the tensor covers exactly");
    values
}
