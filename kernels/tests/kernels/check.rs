use burn::tensor::Device;
use fulmar_kernels::check::all;

#[test]
fn every_kernel_of_the_cpu_agrees_with_its_reference() {
    for check in all() {
        let deviations = check.compare(&Device::flex());
        assert!(check.passes(&deviations), "{} {}: {deviations:?}", check.op, check.shape);
    }
}
