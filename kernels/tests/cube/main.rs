//! Every operation on a wgpu device against the references and the kernels of the CPU.
//!
//! Without a GPU it runs on Mesa's software Vulkan (Debian: `mesa-vulkan-drivers`).

use burn::tensor::{Device, DeviceKind};
use fulmar_kernels::check::{Body, all};
use fulmar_kernels::device_panic::abort_on_device_panic;

#[test]
fn every_kernel_of_wgpu_agrees_with_the_cpu() {
    abort_on_device_panic();
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    for check in all() {
        let deviations = check.compare(&device);
        assert!(check.passes(&deviations), "{} {}: {deviations:?}", check.op, check.shape);
        let of_cpu = check.outputs(&Device::flex(), Body::Kernel);
        let deviations = check.outputs(&device, Body::Kernel).deviations(&of_cpu);
        assert!(check.passes(&deviations), "{} {}: {deviations:?}", check.op, check.shape);
    }
}
