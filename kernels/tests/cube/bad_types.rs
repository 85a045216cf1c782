//! Types that kernels or the device lack are refused by name before anything is launched.

use burn::tensor::{DType, Int, Tensor};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::rms_norm::rms_norm;
use fulmar_kernels::silu::silu;

use super::{device, tensor};

#[test]
#[should_panic(expected = "silu: `x` is f16, needed f32 or bf16")]
fn a_float_type_without_a_kernel_is_refused() {
    silu(tensor([2, 3], 0.1, &device()).cast(DType::F16));
}

#[test]
#[should_panic(expected = "silu: `x` is bf16, which this device lacks, needed f32")]
fn a_float_type_that_the_device_lacks_is_refused() {
    let x = Tensor::<2>::empty([2, 3], (&device(), DType::BF16));
    silu(x);
}

#[test]
#[should_panic(expected = "rms_norm: `gain` is f16, needed f32 or bf16")]
fn the_argument_that_is_wrong_is_named() {
    let gain = tensor([3], 0.2, &device()).cast(DType::F16);
    rms_norm(tensor([2, 3], 0.1, &device()), gain, 1e-5);
}

#[test]
#[should_panic(expected = "combine_weights: `selected` is i64, needed i32")]
fn ids_of_another_width_are_refused() {
    let selected = Tensor::<2, Int>::zeros([2, 1], &device()).cast(DType::I64);
    combine_weights(tensor([2, 3], 0.1, &device()), selected, 2.5);
}
