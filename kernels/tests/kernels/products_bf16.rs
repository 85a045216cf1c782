//! Operations whose products are those of bf16, against their references and against f32.

use burn::tensor::{DType, Int, Tensor, TensorData};
use fulmar_kernels::attention::{self, AttentionOptions, attention};
use fulmar_kernels::grouped_swiglu::{self, Groups, grouped_swiglu};

use crate::compare::{assert_close, assert_repeats, bits, device, floats, leaf, tensor};

/// Half the distance of 1 to the next bf16: the relative error of one rounding.
const ROUNDING: f32 = 1.0 / 256.0;

type Experts = fn(Tensor<2>, Tensor<3>, Tensor<3>, Tensor<3>, &Groups) -> Tensor<2>;
type Attention =
    fn(Tensor<4>, Tensor<4>, Tensor<4>, Tensor<2, Int>, &AttentionOptions) -> Tensor<4>;

/// The result and the gradients of x, gate, up and down, which are f32; the op sees `dtype`.
fn experts(op: Experts, groups: &Groups, [c, f]: [usize; 2], dtype: DType) -> [Tensor<1>; 5] {
    let g = groups.num_groups();
    let x = leaf([groups.rows(), c], 1);
    let weights = [leaf([g, c, f], 2), leaf([g, c, f], 3), leaf([g, f, c], 4)];
    let [w_gate, w_up, w_down] = weights.clone().map(|w: Tensor<3>| w.cast(dtype));
    let out = op(x.clone().cast(dtype), w_gate, w_up, w_down, groups).cast(DType::F32);
    let upstream = Tensor::from_inner(tensor(out.dims(), 5));
    let grads = (out.clone() * upstream).sum().backward();
    let [d_gate, d_up, d_down] = weights.map(|w| w.grad(&grads).expect("a weight gradient"));
    let dx = x.grad(&grads).expect("dx");
    for (name, found) in
        [("dx", dx.dtype()), ("d_gate", d_gate.dtype()), ("d_down", d_down.dtype())]
    {
        assert_eq!(found, DType::F32, "{name}: gradients of f32 leaves are f32");
    }
    let [d_gate, d_up, d_down] = [d_gate, d_up, d_down].map(|w| w.flatten(0, 2));
    [out.inner().flatten(0, 1), dx.flatten(0, 1), d_gate, d_up, d_down]
}

fn assert_all_close<const N: usize>(
    name: &str,
    found: [Tensor<1>; N],
    expected: [Tensor<1>; N],
    roundings: f32,
) {
    for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
        assert_close(&format!("{name} {i}"), found, expected, roundings * ROUNDING);
    }
}

/// Values of bf16 have the lower half of their bits clear.
fn assert_rounded(name: &str, values: Tensor<1>) {
    assert!(bits(values).iter().all(|bits| bits & 0xffff == 0), "{name}: values of bf16");
}

#[test]
fn experts_in_bf16_match_their_reference_and_differ_from_f32_by_roundings() {
    let scattered =
        Groups::new(vec![40, 0, 12, 3, 20], vec![9, 3, 0, 7, 17], 60).expect("disjoint");
    for (groups, sizes) in
        [(Groups::from_counts(&[3, 0, 5, 300, 1]), [7, 5]), (scattered, [16, 24])]
    {
        let found = experts(grouped_swiglu, &groups, sizes, DType::BF16);
        let expected = experts(grouped_swiglu::reference, &groups, sizes, DType::BF16);
        // The reference rounds gradients of the activation once more.
        assert_all_close("bf16", found.clone(), expected, 2.0);
        for (i, values) in found.clone().into_iter().enumerate() {
            assert_rounded(&format!("result {i}"), values);
        }
        let wide = experts(grouped_swiglu, &groups, sizes, DType::F32);
        for (found, wide) in found.iter().zip(&wide) {
            assert_ne!(bits(found.clone()), bits(wide.clone()), "bf16 rounds");
        }
        // On the way to a result lie at most five rounded operands and results.
        assert_all_close("f32", found, wide, 5.0);
    }
}

#[test]
fn rows_of_no_group_are_zero_in_bf16_too() {
    let groups = Groups::new(vec![4], vec![3], 9).expect("a range");
    let [out, dx, ..] = experts(grouped_swiglu, &groups, [2, 3], DType::BF16);
    for values in [out, dx].map(floats) {
        let zero = |row: usize| values[row * 2..][..2].iter().all(|&value| value == 0.0);
        assert_eq!((0..9).filter(|&row| zero(row)).collect::<Vec<_>>(), [0, 1, 2, 3, 7, 8]);
    }
}

const OPTIONS: AttentionOptions = AttentionOptions {
    own_kv_heads: 1,
    window: None,
    rope_base: Some(1e4),
    qk_mult: 1.3,
    norm_eps: 1e-6,
    exclusive_eps: 1e-6,
};

/// The result and the gradients of q, k and v, which are f32; the op sees `dtype`.
fn attend(
    op: Attention,
    [h, j, a]: [usize; 3],
    options: &AttentionOptions,
    dtype: DType,
) -> [Tensor<1>; 4] {
    let (b, lengths) = (2, [30, 1, 100, 20]);
    let ids: Vec<i32> = (0..).zip(lengths).flat_map(|(id, len)| vec![id; len]).collect();
    let s = ids.len();
    let segments = Tensor::from_data(TensorData::new(ids.repeat(b), [b, s]), &device());
    let leaves = [leaf([b, s, h, a], 1), leaf([b, s, j, a], 2), leaf([b, s, j, a], 3)];
    let [q, k, v] = leaves.clone().map(|x: Tensor<4>| x.cast(dtype));
    let out = op(q, k, v, segments, options).cast(DType::F32);
    let grads = (out.clone() * Tensor::from_inner(tensor([b, s, h, a], 4))).sum().backward();
    let [dq, dk, dv] = leaves.map(|leaf| leaf.grad(&grads).expect("a gradient"));
    [out.inner(), dq, dk, dv].map(|x| x.flatten(0, 3))
}

#[test]
fn attention_in_bf16_matches_its_reference_and_differs_from_f32_by_roundings() {
    let windows = [None, Some(1000), Some(40)];
    for (heads, own) in [([3, 1, 8], 1), ([4, 2, 16], 2), ([8, 4, 8], 2)] {
        for (window, rope_base) in windows.into_iter().zip([None, Some(1e4), Some(1e4)]) {
            let options = AttentionOptions { own_kv_heads: own, window, rope_base, ..OPTIONS };
            let name = format!("heads {heads:?} {options:?}");
            let found = attend(attention, heads, &options, DType::BF16);
            let expected = attend(attention::reference, heads, &options, DType::BF16);
            // Beside the results, gradients on the way are rounded.
            assert_all_close(&name, found.clone(), expected, 3.0);
            for (i, values) in found.clone().into_iter().enumerate() {
                assert_rounded(&format!("{name}: {i}"), values);
            }
            let wide = attend(attention, heads, &options, DType::F32);
            for (found, wide) in found.iter().zip(&wide) {
                assert_ne!(bits(found.clone()), bits(wide.clone()), "bf16 rounds");
            }
            assert_all_close(&format!("{name} in f32"), found, wide, 5.0);
        }
    }
}

#[test]
fn products_in_bf16_do_not_depend_on_the_number_of_threads() {
    let groups = Groups::from_counts(&[70, 0, 31, 1, 60]);
    assert_repeats(|| experts(grouped_swiglu, &groups, [24, 17], DType::BF16).map(bits));
    assert_repeats(|| attend(attention, [4, 2, 16], &OPTIONS, DType::BF16).map(bits));
}

#[test]
#[should_panic(expected = "grouped_swiglu: `w_up` is F32, needed BF16 as `x`")]
fn an_expert_matrix_of_another_type_is_named() {
    let half = |w: Tensor<3>| w.cast(DType::BF16);
    let w = || tensor([1, 2, 2], 1);
    let x = tensor::<2>([3, 2], 1).cast(DType::BF16);
    grouped_swiglu(x, half(w()), w(), half(w()), &Groups::from_counts(&[3]));
}

#[test]
#[should_panic(expected = "attention: `v` is F32, needed BF16 as `q`")]
fn values_of_another_type_are_named() {
    let x = || tensor::<4>([1, 2, 1, 4], 1);
    let half = |x: Tensor<4>| x.cast(DType::BF16);
    attention(half(x()), half(x()), x(), Tensor::zeros([1, 2], &device()), &OPTIONS);
}
