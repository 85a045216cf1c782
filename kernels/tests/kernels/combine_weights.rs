use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::combine_weights::{combine_weights, reference};
use fulmar_kernels::top_k::top_k;

use crate::compare::{
    assert_close, assert_gradient, assert_same_bits, device, in_pool, leaf, tensor,
};

type Op = fn(Tensor<2>, Tensor<2, Int>, f64) -> Tensor<2>;

/// The result and the gradient of the logits; the first of every seventh token's ids is -1.
fn run(op: Op, [t, e, k]: [usize; 3], flip: bool) -> [Tensor<2>; 2] {
    let view = |x: Tensor<2>| if flip { x.swap_dims(0, 1) } else { x };
    let logits = leaf(if flip { [e, t] } else { [t, e] }, 1);
    let scores = view(logits.clone()).mul_scalar(4.0);
    let selected = top_k(scores.clone(), k).selected;
    let mut ids = selected.into_data().try_to_vec::<i32>().expect("i32");
    ids.iter_mut().step_by(7 * k).for_each(|id| *id = -1);
    let selected = Tensor::from_data(TensorData::new(ids, [t, k]), &device());
    let out = op(scores, selected, 2.5);
    let grads = (out.clone() * Tensor::from_inner(tensor([t, k], 3))).sum().backward();
    [out.inner(), logits.grad(&grads).expect("dlogits")]
}

#[test]
fn combine_weights_matches_its_reference_in_values_and_gradients() {
    for shape in [[1, 2, 1], [5, 7, 6], [65, 16, 4], [200, 33, 8]] {
        for flip in [false, true] {
            let expected = run(reference, shape, flip);
            for (found, expected) in run(combine_weights, shape, flip).into_iter().zip(expected) {
                assert_close(&format!("combine_weights {shape:?}"), found, expected, 2e-6);
            }
        }
    }
}

#[test]
fn combine_weights_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    let once = || run(combine_weights, [300, 33, 4], false);
    let expected = once();
    for found in [once(), in_pool(1, once), in_pool(3, once)] {
        for (found, expected) in found.iter().zip(&expected) {
            assert_same_bits("combine_weights", found, expected);
        }
    }
}

#[test]
fn its_gradient_is_the_finite_difference() {
    let selected = Tensor::<2, Int>::from_data([[0, 3], [2, -1]], &device());
    let logits = leaf::<2>([2, 4], 1);
    let upstream = tensor::<2>([2, 2], 2);
    let loss = |x: Tensor<2>| (combine_weights(x, selected.clone(), 2.5) * upstream.clone()).sum();
    let grads = loss(logits.clone()).backward();
    let gradient = logits.grad(&grads).expect("dlogits");
    assert_gradient("dlogits", loss, logits.inner(), gradient, 1e-2);
}

#[test]
fn a_token_without_experts_has_weights_and_gradient_zero() {
    let selected = Tensor::<2, Int>::from_data([[-1, -1]], &device());
    let logits =
        Tensor::<2>::from_data([[f32::NAN, 1.0, 2.0]], &device()).autodiff().require_grad();
    let out = combine_weights(logits.clone(), selected, 2.5);
    let gradient = logits.grad(&out.clone().sum().backward()).expect("dlogits");
    assert_eq!(out.inner().into_data().try_to_vec::<f32>().expect("f32"), [0.0; 2]);
    assert_eq!(gradient.into_data().try_to_vec::<f32>().expect("f32"), [0.0; 3]);
}

#[test]
#[should_panic(expected = "combine_weights: `selected` has id 4 in row 1, needed -1 to 3")]
fn an_id_that_is_no_expert_is_refused() {
    let selected = Tensor::<2, Int>::from_data([[0, 3], [4, 1]], &device());
    combine_weights(tensor([2, 4], 1), selected, 2.5);
}
