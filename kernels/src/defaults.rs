//! Tests of the default bodies of the kernel traits, which are what a backend without kernels of
//! its own runs: forward through [`Bridge`], backward by autodiff of the reference.
//!
//! Flex overrides them, so they are asked for here through [`Dispatch`], which computes on Flex
//! and has no kernels; their results must be those of Flex's own kernels.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Dispatch, Flex};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::adam::{AdamKernel, AdamOptions};
use crate::attention::{AttentionInputs, AttentionKernel, AttentionOptions};
use crate::bridge::Bridge;
use crate::combine_weights::CombineWeightsKernel;
use crate::cross_entropy::CrossEntropyKernel;
use crate::gated::{Activation, GatedKernel};
use crate::grouped_swiglu::{GroupedSwigluInputs, GroupedSwigluKernel, Groups};
use crate::margins::{MarginBins, MarginKernel};
use crate::muonh::{MuonHKernel, MuonHNorm, MuonHOptions};
use crate::newton_schulz::{NewtonSchulzKernel, Precision};
use crate::pack::{Header, PackKernel};
use crate::permute::{PermuteKernel, RowIds};
use crate::rms_norm::RmsNormKernel;
use crate::route::RouteKernel;
use crate::routing_statistics::RoutingStatisticsKernel;
use crate::sequence_balance::SequenceBalanceKernel;
use crate::short_conv::ShortConvKernel;
use crate::silu::SiluKernel;
use crate::top_k::TopKKernel;

impl Bridge for Dispatch {
    fn lift<const D: usize>(primitive: FloatTensor<Self>) -> Tensor<D> {
        Tensor::from_dispatch(primitive)
    }

    fn lower<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self> {
        tensor.into_dispatch()
    }

    fn lift_int<const D: usize>(primitive: IntTensor<Self>) -> Tensor<D, Int> {
        Tensor::from_dispatch(primitive)
    }

    fn lower_int<const D: usize>(tensor: Tensor<D, Int>) -> IntTensor<Self> {
        tensor.into_dispatch()
    }
}

/// Results of one backend, flattened.
type Values = Vec<Vec<f32>>;

/// Some values in [-1, 1] that differ by `salt`.
fn floats<B: Bridge, const D: usize>(shape: [usize; D], salt: f32) -> FloatTensor<B> {
    let len = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| (i as f32 * (1.0 + salt)).sin()).collect();
    B::lower(Tensor::<D>::from_data(TensorData::new(values, shape), &Device::flex()))
}

fn integers<B: Bridge, const D: usize>(shape: [usize; D], values: &[i32]) -> IntTensor<B> {
    B::lower_int(Tensor::<D, Int>::from_data(
        TensorData::new(values.to_vec(), shape),
        &Device::flex(),
    ))
}

fn read<B: Bridge, const D: usize>(found: FloatTensor<B>) -> Vec<f32> {
    B::lift::<D>(found).into_data().try_to_vec().expect("f32")
}

fn read_integers<B: Bridge, const D: usize>(found: IntTensor<B>) -> Vec<f32> {
    B::lift_int::<D>(found).float().into_data().try_to_vec().expect("f32")
}

fn assert_agree(defaults: Values, kernels: Values) {
    assert_eq!(defaults.len(), kernels.len());
    for (which, (found, expected)) in defaults.into_iter().zip(kernels).enumerate() {
        assert_eq!(found.len(), expected.len(), "result {which}");
        let scale = expected.iter().fold(1e-12f32, |max, v| max.max(v.abs()));
        for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error <= 1e-4 * scale, "{which}[{i}]: found {found}, expected {expected}");
        }
    }
}

/// A test that two backends agree, one with and one without kernels; the expression computes the
/// results of backend `$b`.
macro_rules! agree {
    ($name:ident, $kernel:ident, $b:ident => $values:expr) => {
        impl $kernel for Dispatch {}

        #[test]
        fn $name() {
            fn run<$b: $kernel>() -> Values {
                $values
            }
            assert_agree(run::<Dispatch>(), run::<Flex>());
        }
    };
}

agree!(rms_norm_by_default, RmsNormKernel, B => {
    let (x, gain) = (floats::<B, 2>([5, 7], 0.1), floats::<B, 1>([7], 0.2));
    let out = B::forward(x.clone(), gain.clone(), 1e-5);
    let (dx, dgain) = B::backward(x, gain, 1e-5, floats::<B, 2>([5, 7], 0.3));
    vec![read::<B, 2>(out), read::<B, 2>(dx), read::<B, 1>(dgain)]
});

agree!(silu_by_default, SiluKernel, B => {
    let x = || floats::<B, 2>([5, 7], 0.1);
    let dx = B::backward(x(), floats::<B, 2>([5, 7], 0.3));
    vec![read::<B, 2>(B::forward(x())), read::<B, 2>(dx)]
});

agree!(gated_by_default, GatedKernel, B => {
    let (value, gate) = (floats::<B, 2>([5, 7], 0.1), floats::<B, 2>([5, 1], 0.2));
    let out = B::forward(value.clone(), gate.clone(), Activation::Silu);
    let grad = floats::<B, 2>([5, 7], 0.3);
    let (dvalue, dgate) = B::backward(value, gate, Activation::Silu, grad);
    vec![read::<B, 2>(out), read::<B, 2>(dvalue), read::<B, 2>(dgate)]
});

agree!(short_conv_by_default, ShortConvKernel, B => {
    let (x, weight) = (floats::<B, 3>([1, 6, 3], 0.1), floats::<B, 2>([2, 3], 0.2));
    let ids = integers::<B, 2>([1, 6], &[0, 0, 0, 1, 1, 2]);
    let out = B::forward(x.clone(), weight.clone(), ids.clone());
    let (dx, dweight) = B::backward(x, weight, ids, floats::<B, 3>([1, 6, 3], 0.3));
    vec![read::<B, 3>(out), read::<B, 3>(dx), read::<B, 2>(dweight)]
});

agree!(attention_by_default, AttentionKernel, B => {
    let inputs = AttentionInputs {
        q: floats::<B, 4>([1, 6, 4, 8], 0.1),
        k: floats::<B, 4>([1, 6, 2, 8], 0.2),
        v: floats::<B, 4>([1, 6, 2, 8], 0.3),
        segment_ids: integers::<B, 2>([1, 6], &[0, 0, 0, 0, 1, 1]),
    };
    let options = AttentionOptions {
        own_kv_heads: 2,
        window: Some(3),
        rope_base: Some(1e4),
        qk_mult: 1.3,
        norm_eps: 1e-6,
        exclusive_eps: 0.5,
    };
    let (out, saved) = B::forward_saving(inputs.clone(), &options);
    let grads = B::backward(inputs, &options, saved, floats::<B, 4>([1, 6, 4, 8], 0.4));
    [out].into_iter().chain(grads).map(read::<B, 4>).collect()
});

agree!(grouped_swiglu_by_default, GroupedSwigluKernel, B => {
    let inputs = GroupedSwigluInputs {
        x: floats::<B, 2>([7, 3], 0.1),
        w_gate: floats::<B, 3>([3, 3, 4], 0.2),
        w_up: floats::<B, 3>([3, 3, 4], 0.3),
        w_down: floats::<B, 3>([3, 4, 3], 0.4),
    };
    let groups = Groups::new(vec![4, 0, 0], vec![2, 0, 3], 7).expect("disjoint ranges");
    let (out, saved) = B::forward_saving(inputs.clone(), &groups);
    let d = B::backward(inputs, &groups, saved, floats::<B, 2>([7, 3], 0.5));
    let weights = [d.w_gate, d.w_up, d.w_down].map(read::<B, 3>);
    [out, d.x].map(read::<B, 2>).into_iter().chain(weights).collect()
});

agree!(permute_by_default, PermuteKernel, B => {
    let ids = RowIds::<B> {
        row_of: integers::<B, 2>([3, 2], &[2, -1, 0, 4, -1, 1]),
        assignment_of: integers::<B, 1>([5], &[2, 5, 0, -1, 3]),
        checked: false,
    };
    let (x, y) = (floats::<B, 2>([3, 4], 0.1), floats::<B, 2>([5, 4], 0.2));
    let (weights, grad) = (floats::<B, 2>([3, 2], 0.3), floats::<B, 2>([3, 4], 0.4));
    let rows = B::dispatch(x, ids.clone());
    let dx = B::dispatch_backward(ids.clone(), y);
    let parts = || vec![floats::<B, 2>([2, 4], 0.2), floats::<B, 2>([3, 4], 0.5)];
    let out = B::combine(parts(), weights.clone(), ids.clone());
    let (dparts, dweights) = B::combine_backward(parts(), weights, ids, grad);
    [rows, dx, out, dweights].into_iter().chain(dparts).map(read::<B, 2>).collect()
});

agree!(pack_by_default, PackKernel, B => {
    let ids = RowIds::<B> {
        row_of: integers::<B, 2>([3, 2], &[2, -1, 1, 5, -1, 4]),
        assignment_of: integers::<B, 1>([6], &[-1, 2, 0, -1, 5, 3]),
        checked: false,
    };
    let header = Header { parts: 2, rows: 1, values: vec![0.5; 8].into() };
    vec![read::<B, 2>(B::pack(floats::<B, 2>([3, 4], 0.1), ids, &header))]
});

agree!(combine_weights_by_default, CombineWeightsKernel, B => {
    let (logits, grad) = (floats::<B, 2>([3, 5], 0.1), floats::<B, 2>([3, 2], 0.2));
    let selected = integers::<B, 2>([3, 2], &[0, 4, 2, -1, 3, 1]);
    let out = B::forward(logits.clone(), selected.clone(), 2.5);
    [out, B::backward(logits, selected, 2.5, grad)].map(read::<B, 2>).into()
});

agree!(sequence_balance_by_default, SequenceBalanceKernel, B => {
    let (logits, grad) = (floats::<B, 2>([6, 5], 0.1), floats::<B, 1>([2], 0.2));
    let selected = integers::<B, 2>([6, 2], &[0, 4, 2, -1, 3, 1, 1, 0, 0, 2, 4, 3]);
    let valid = integers::<B, 1>([6], &[1, 1, 0, 1, 1, 1]);
    let out = B::forward(logits.clone(), selected.clone(), valid.clone(), 3);
    vec![read::<B, 1>(out), read::<B, 2>(B::backward(logits, selected, valid, 3, grad))]
});

agree!(cross_entropy_by_default, CrossEntropyKernel, B => {
    let (hidden, head) = (floats::<B, 2>([4, 3], 0.1), floats::<B, 2>([3, 9], 0.2));
    let (targets, weight) = (integers::<B, 1>([4], &[8, 0, 3, 3]), floats::<B, 1>([4], 0.3));
    let (inputs, labels) = ((hidden.clone(), head.clone()), (targets.clone(), weight.clone()));
    let (total, _, _) = B::forward(inputs.0, inputs.1, labels.0, labels.1, 1e-2);
    let (nll, log_sum_exp) = B::forward_tokens(hidden.clone(), head.clone(), targets.clone());
    let (sums, grads) = B::forward_and_gradients(hidden, head, targets, weight, 1e-2);
    let sums = [total, sums.0, sums.1, sums.2, nll, log_sum_exp].map(read::<B, 1>);
    sums.into_iter().chain([grads.0, grads.1].map(read::<B, 2>)).collect()
});

agree!(top_k_by_default, TopKKernel, B => {
    let (selected, next) = B::forward(floats::<B, 2>([4, 6], 0.1), 3);
    vec![read_integers::<B, 2>(selected), read::<B, 1>(next)]
});

agree!(route_by_default, RouteKernel, B => {
    let (logits, bias) = (floats::<B, 2>([4, 6], 0.1), floats::<B, 1>([6], 0.2));
    let (selected, weights, alpha) = <B as RouteKernel>::forward(logits, bias, 3, 2.5);
    vec![read_integers::<B, 2>(selected), read::<B, 2>(weights), read::<B, 1>(alpha)]
});

agree!(routing_statistics_by_default, RoutingStatisticsKernel, B => {
    let (logits, alpha) = (floats::<B, 2>([4, 6], 0.1), floats::<B, 1>([4], 0.2));
    let selected = integers::<B, 2>([4, 2], &[0, 4, 2, -1, 3, 1, 5, 0]);
    let valid = integers::<B, 1>([4], &[1, 0, 1, 1]);
    let (counts, sums, bounds) = B::forward(logits, selected, alpha, valid);
    // One backend sums in f64, the other in f32.
    let sums = B::lift::<2>(sums).into_data().iter::<f32>().collect();
    vec![read_integers::<B, 2>(counts), sums, read::<B, 2>(bounds)]
});

agree!(margins_by_default, MarginKernel, B => {
    let margins = || (floats::<B, 2>([6, 5], 0.1), floats::<B, 1>([6], 0.2));
    let valid = || integers::<B, 1>([6], &[1, 0, 1, 1, 1, 1]);
    let range = MarginBins::Range { low: -2.0, width: 0.5, len: 8 };
    let aligned = MarginBins::Aligned { exponent: -2, first: -8, len: 16 };
    let of = |bins| {
        let counts = B::histogram(margins().0, margins().1, valid(), bins);
        let found = B::cross_margins(margins().0, margins().1, valid(), bins, 2);
        [counts.clone(), B::cross(counts, 3), found].map(read_integers::<B, 2>)
    };
    [of(range), of(aligned)].into_iter().flatten().collect()
});

agree!(newton_schulz_by_default, NewtonSchulzKernel, B => {
    vec![read::<B, 3>(B::forward(floats::<B, 3>([2, 5, 3], 0.1), Precision::F32))]
});

agree!(muonh_by_default, MuonHKernel, B => {
    let [w, grad, momentum] = [0.1, 0.2, 0.3].map(|salt| floats::<B, 3>([2, 5, 3], salt));
    let norm = MuonHNorm::PerMatrix;
    let options = MuonHOptions { lr: 0.02, momentum: 0.95, precision: Precision::F32, norm };
    let (w, momentum) = B::step(w, grad, momentum, &options);
    vec![read::<B, 3>(w), read::<B, 3>(momentum)]
});

agree!(adam_by_default, AdamKernel, B => {
    let options = AdamOptions {
        lr: 0.02,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        step: 3,
        weight_decay: 0.0,
    };
    let inputs = || [0.1, 0.2, 0.3].map(|salt| floats::<B, 1>([9], salt));
    let [w, grad, m] = inputs();
    let v = || B::float_abs(floats::<B, 1>([9], 0.4));
    let plain = B::step([w, grad, m, v()], &options);
    let [w, grad, m] = inputs();
    let hyperball = B::hyperball_step([w, grad, m, v()], &options);
    plain.into_iter().chain(hyperball).map(read::<B, 1>).collect()
});
