//! Inputs of a shape, the same in every run.

use burn::tensor::{Device, Tensor};
use fulmar_model::Initializer;

/// A leaf of random values.
pub(crate) fn leaf<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
    let device = Device::flex();
    let init = Initializer::new(1, 0.07, &device);
    let flat = init.matrix(name, [1, shape.iter().product()]).val().inner();
    Tensor::from_inner(flat.reshape(shape)).require_grad()
}
