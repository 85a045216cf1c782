use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::combine_weights::{combine_weights, reference};
use fulmar_kernels::top_k::top_k;

use crate::compare::{assert_close, assert_repeats, device, leaf, tensor};

type Op = fn(Tensor<2>, Tensor<2, Int>, f64) -> Tensor<2>;

fn ids(values: Vec<i32>, k: usize) -> Tensor<2, Int> {
    let shape = [values.len() / k, k];
    Tensor::from_data(TensorData::new(values, shape), &device())
}

/// Spread over the columns, every fifth slot without an expert; twice the same where k > e.
fn spread(t: usize, e: usize, k: usize) -> Tensor<2, Int> {
    let id = |i: usize| if i % 5 == 4 { -1 } else { ((i * (e / 2 + 1) + i / k) % e) as i32 };
    ids((0..t * k).map(id).collect(), k)
}

/// The result and the gradient of the logits, from transposed views of logits and ids.
fn run(op: Op, t: usize, e: usize, k: usize) -> [Tensor<2>; 2] {
    let logits = leaf([e, t], 1);
    let selected = ids(spread(t, e, k).swap_dims(0, 1).into_data().iter::<i32>().collect(), t);
    let scaled = logits.clone().swap_dims(0, 1).mul_scalar(4.0);
    let out = op(scaled, selected.swap_dims(0, 1), 2.5);
    let upstream = Tensor::from_inner(tensor([k, t], 2)).swap_dims(0, 1);
    let grads = (out.clone() * upstream).sum().backward();
    [out.inner(), logits.grad(&grads).expect("dlogits")]
}

#[test]
fn combine_weights_matches_its_reference_in_values_and_gradients() {
    // Not k = 1: its gradient is 1e-9 of its terms, so that only rounding would be compared.
    for (t, e, k) in [(1, 3, 2), (3, 7, 2), (65, 48, 4), (130, 33, 5), (4, 3, 8)] {
        let [out, dlogits] = run(combine_weights, t, e, k);
        let [out_ref, dlogits_ref] = run(reference, t, e, k);
        assert_close("out", out, out_ref, 1e-6);
        assert_close("dlogits", dlogits, dlogits_ref, 1e-5);
    }
}

#[test]
fn the_weights_of_a_token_add_up_to_the_sum() {
    let logits = tensor::<2>([70, 9], 3);
    let selected = top_k(logits.clone(), 4).selected;
    let sums = combine_weights(logits, selected, 2.5).sum_dim(1);
    assert_close("sums", sums, Tensor::full([70, 1], 2.5, &device()), 1e-6);
}

#[test]
fn a_slot_without_an_expert_has_no_weight_and_no_gradient() {
    let logits = Tensor::<2>::from_data([[0.0, f32::NAN], [f32::NAN, f32::NAN]], &device());
    let logits = Tensor::from_inner(logits).require_grad();
    let out = combine_weights(logits.clone(), ids(vec![0, -1, -1, -1], 2), 2.0);
    let upstream = Tensor::<2>::from_data([[1.0, 5.0], [7.0, 9.0]], &device());
    let grads = (out.clone() * Tensor::from_inner(upstream)).sum().backward();
    // s = 1/2 alone: the weight is the sum but for 1e-9, and moves with 1e-9 only.
    assert_close("out", out.inner(), Tensor::from_data([[2.0, 0.0], [0.0, 0.0]], &device()), 1e-6);
    let dlogits = logits.grad(&grads).expect("dlogits").into_data();
    let dlogits = dlogits.try_to_vec::<f32>().expect("f32");
    assert!(dlogits.iter().all(|v| v.abs() < 1e-6), "{dlogits:?}");
    assert_eq!(dlogits[1..], [0.0; 3]);
}

#[test]
fn logits_far_from_zero_give_finite_weights_and_gradients() {
    let logits =
        Tensor::<2>::from_data([[-200.0, -150.0, -20.0], [200.0, -200.0, 90.0]], &device());
    let logits = Tensor::from_inner(logits).require_grad();
    let out = combine_weights(logits.clone(), ids(vec![0, 1, 0, 2], 2), 2.5);
    let upstream = Tensor::from_inner(tensor([2, 2], 4));
    let grads = (out.clone() * upstream).sum().backward();
    assert_close(
        "out",
        out.inner(),
        Tensor::from_data([[0.0, 0.0], [1.25, 1.25]], &device()),
        1e-6,
    );
    let dlogits = logits.grad(&grads).expect("dlogits").into_data();
    assert!(dlogits.iter::<f32>().all(f32::is_finite));
}

#[test]
fn combine_weights_gives_the_same_bits_on_one_and_on_three_threads() {
    let bits = || run(combine_weights, 700, 48, 4).map(|t| t.into_data());
    assert_repeats(bits);
}

#[test]
fn the_gradient_of_combine_weights_is_the_finite_difference() {
    let (t, e, k) = (3, 5, 2);
    let logits = leaf::<2>([t, e], 6);
    let selected = || spread(t, e, k);
    let upstream = tensor::<2>([t, k], 7);
    let out = combine_weights(logits.clone(), selected(), 2.5);
    let grads = (out * Tensor::from_inner(upstream.clone())).sum().backward();
    let found = logits.grad(&grads).expect("dlogits").into_data();
    let found = found.try_to_vec::<f32>().expect("f32");
    for (position, found) in found.into_iter().enumerate() {
        let loss = |delta: f32| {
            let mut logits = tensor::<2>([t, e], 6).into_data().try_to_vec::<f32>().expect("f32");
            logits[position] += delta;
            let logits = Tensor::<2>::from_data(TensorData::new(logits, [t, e]), &device());
            let out = combine_weights(logits, selected(), 2.5);
            (out * upstream.clone()).sum().into_scalar::<f32>()
        };
        let slope = (loss(0.03) - loss(-0.03)) / 0.06;
        assert!((found - slope).abs() < 1e-3, "[{position}]: found {found}, slope {slope}");
    }
}

#[test]
fn no_tokens_have_no_weights() {
    let none = Tensor::<2, Int>::zeros([0, 2], &device());
    assert_eq!(combine_weights(tensor([0, 5], 1), none, 2.5).dims(), [0, 2]);
}

#[test]
#[should_panic(expected = "combine_weights: `selected[3]` is 5, needed -1 to 4")]
fn an_expert_out_of_range_is_named() {
    combine_weights(tensor([2, 5], 1), ids(vec![0, -1, 1, 5], 2), 2.5);
}

#[test]
#[should_panic(expected = "combine_weights: `selected` has 1 rows, needed 2 as in `logits`")]
fn combine_weights_needs_ids_for_each_token() {
    combine_weights(tensor([2, 5], 1), ids(vec![0, 1], 2), 2.5);
}
