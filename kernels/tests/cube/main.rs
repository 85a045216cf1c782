//! Every operation on a wgpu device against the references and the kernels of the CPU.
//!
//! Without a GPU it runs on Mesa's software Vulkan (Debian: `mesa-vulkan-drivers`).

mod bad_ids;
mod bad_types;
mod empty;
mod in_place;

use burn::tensor::{Device, DeviceKind, Tensor, TensorData};
use fulmar_kernels::check::{Body, all};
use fulmar_kernels::device_panic::abort_on_device_panic;

/// The device of the kernels under test.
fn device() -> Device {
    abort_on_device_panic();
    Device::wgpu(DeviceKind::DefaultDevice)
}

/// Some values in [-1, 1] that differ by `salt`.
fn tensor<const D: usize>(shape: [usize; D], salt: f32, device: &Device) -> Tensor<D> {
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| (i as f32 * (1.0 + salt)).sin()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// [`tensor`] as a leaf.
fn leaf<const D: usize>(shape: [usize; D], salt: f32, device: &Device) -> Tensor<D> {
    Tensor::from_inner(tensor(shape, salt, device)).require_grad()
}

/// The values of a tensor in row-major order.
fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[test]
fn every_kernel_of_wgpu_agrees_with_the_cpu() {
    let device = device();
    let mut failures = Vec::new();
    for check in all() {
        let found = check.outputs(&device, Body::Kernel);
        for body in [Body::Reference, Body::Kernel] {
            let deviations = found.deviations(&check.outputs(&Device::flex(), body));
            if !check.passes(&deviations) {
                failures.push(format!("{} {}, {body:?}: {deviations:?}", check.op, check.shape));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn results_of_a_device_repeat() {
    let device = device();
    for check in all() {
        let bits = || {
            let outputs = check.outputs(&device, Body::Kernel).0.into_iter();
            outputs
                .map(|o| o.values.into_iter().map(f64::to_bits).collect())
                .collect::<Vec<Vec<_>>>()
        };
        assert_eq!(bits(), bits(), "{} {}", check.op, check.shape);
    }
}
