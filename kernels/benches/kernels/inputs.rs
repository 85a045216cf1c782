//! Inputs of a shape, the same in every run.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Values in [-1, 1).
pub(crate) fn values(len: usize) -> Vec<f32> {
    (0..len as u64)
        .map(|i| {
            let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

pub(crate) fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    let data = TensorData::new(values(shape.iter().product()), shape);
    Tensor::from_data(data, &Device::flex())
}

/// A tensor whose gradient is wanted.
pub(crate) fn leaf<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::from_inner(tensor(shape)).require_grad()
}

pub(crate) fn ints<const D: usize>(values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

/// Runs an operation and its backward pass; what comes out is dropped after the time is taken.
pub(crate) fn forward_backward<const D: usize>(out: Tensor<D>) -> impl Sized {
    out.sum().backward()
}
