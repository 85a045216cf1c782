//! Types that kernels or the device lack are refused by name before anything is launched.

use burn::tensor::{DType, Int, Tensor};
use fulmar_kernels::attention::{AttentionOptions, attention};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::cross_entropy::cross_entropy;
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu};
use fulmar_kernels::margins::{MarginBins, Margins, crossings};
use fulmar_kernels::newton_schulz::{Precision, newton_schulz};
use fulmar_kernels::rms_norm::rms_norm;
use fulmar_kernels::route::route;
use fulmar_kernels::routing_statistics::routing_statistics;
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

#[test]
#[should_panic(expected = "cross_entropy: `head` is f16, needed f32 or bf16")]
fn a_head_of_another_type_is_refused() {
    let head = tensor([3, 4], 0.2, &device()).cast(DType::F16);
    let (targets, weight) = (Tensor::zeros([2], &device()), Tensor::ones([2], &device()));
    cross_entropy(tensor([2, 3], 0.1, &device()), head, targets, weight, 0.0);
}

#[test]
#[should_panic(expected = "grouped_swiglu: `w_up` is F16, needed F32 as `x`")]
fn a_matrix_of_another_type_is_refused() {
    let w = || tensor([1, 3, 3], 0.2, &device());
    let x = tensor([2, 3], 0.1, &device());
    grouped_swiglu(x, w(), w().cast(DType::F16), w(), &Groups::from_counts(&[2]));
}

#[test]
#[should_panic(expected = "attention: `segment_ids` is i64, needed i32")]
fn segment_ids_of_another_width_are_refused() {
    let x = || tensor([1, 2, 1, 4], 0.1, &device());
    let segment_ids = Tensor::<2, Int>::zeros([1, 2], &device()).cast(DType::I64);
    let options = AttentionOptions {
        own_kv_heads: 1,
        window: None,
        rope_base: None,
        qk_mult: 1.0,
        norm_eps: 1e-6,
        exclusive_eps: 1e-6,
    };
    attention(x(), x(), x(), segment_ids, &options);
}

#[test]
#[should_panic(
    expected = "newton_schulz: `precision` is Bf16, which this device lacks, needed F32"
)]
fn a_precision_that_the_device_lacks_is_refused() {
    newton_schulz(tensor([1, 2, 3], 0.1, &device()), Precision::Bf16);
}

#[test]
#[should_panic(expected = "route: `bias` is f16, needed f32 or bf16")]
fn a_bias_of_another_type_is_refused() {
    let bias = tensor([4], 0.2, &device()).cast(DType::F16);
    route(tensor([2, 4], 0.1, &device()), bias, 2, 2.5);
}

#[test]
#[should_panic(expected = "routing_statistics: `token_valid` is i64, needed i32")]
fn marks_of_another_width_are_refused() {
    let selected = Tensor::<2, Int>::zeros([2, 1], &device());
    let valid = Tensor::<1, Int>::ones([2], &device()).cast(DType::I64);
    let (logits, alpha) = (tensor([2, 4], 0.1, &device()), tensor([2], 0.2, &device()));
    routing_statistics(logits, selected, alpha, valid);
}

#[test]
#[should_panic(expected = "crossings: `counts` is i64, needed i32")]
fn counts_of_another_width_are_refused() {
    crossings(Tensor::<2, Int>::zeros([2, 3], &device()).cast(DType::I64), 1);
}

#[test]
#[should_panic(expected = "margins: `exponent` is -127, needed -126 to 126 on this device")]
fn bins_that_a_device_cannot_scale_to_are_refused() {
    let valid = Tensor::<1, Int>::ones([2], &device());
    let margins = Margins::new(tensor([2, 4], 0.1, &device()), tensor([2], 0.2, &device()), valid);
    margins.histogram(MarginBins::Aligned { exponent: -127, first: 0, len: 3 });
}
