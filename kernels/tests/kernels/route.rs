use burn::tensor::{Int, Tensor};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::route::{Route, reference, route};
use fulmar_kernels::top_k::top_k;

use crate::compare::{assert_close, assert_gradient, assert_repeats, bits, leaf, tensor};

type Op = fn(Tensor<2>, Tensor<1>, usize, f64) -> Route;

const SUM: f64 = 2.5;

fn ids(selected: Tensor<2, Int>) -> Vec<i32> {
    selected.into_data().iter::<i32>().collect()
}

/// What is done in two steps without it.
fn in_two_steps(logits: Tensor<2>, bias: Tensor<1>, k: usize, sum: f64) -> Route {
    let top = top_k(logits.clone().inner() + bias.unsqueeze(), k);
    let combine_weights = combine_weights(logits, top.selected.clone(), sum);
    Route { selected: top.selected, combine_weights, alpha: top.next }
}

/// Ids, weights, alpha and the gradient of the logits, from a transposed view of them.
fn run(op: Op, [t, e, k]: [usize; 3]) -> (Vec<i32>, [Vec<u32>; 3]) {
    let leaf = leaf([e, t], 1);
    let logits = leaf.clone().swap_dims(0, 1).mul_scalar(4.0);
    let found = op(logits, tensor([e], 2), k, SUM);
    let weights = found.combine_weights;
    let upstream = Tensor::from_inner(tensor(weights.dims(), 3));
    let grads = (weights.clone() * upstream).sum().backward();
    let dlogits = bits(leaf.grad(&grads).expect("dlogits"));
    (ids(found.selected), [bits(weights.inner()), bits(found.alpha), dlogits])
}

#[test]
fn route_has_the_bits_of_top_k_and_combine_weights() {
    for shape in [[1, 3, 2], [3, 7, 6], [65, 48, 4], [130, 33, 8]] {
        assert_eq!(run(route, shape), run(in_two_steps, shape), "{shape:?}");
    }
}

#[test]
fn the_bias_moves_the_choice_and_not_the_weights() {
    let logits = Tensor::<2>::from_data([[3.0, 2.0, 1.0, 0.0]], &crate::compare::device());
    let bias = Tensor::<1>::from_data([-10.0, 0.0, 0.0, 10.0], &crate::compare::device());
    for op in [route, reference] {
        let found = op(logits.clone(), bias.clone(), 2, SUM);
        assert_eq!(ids(found.selected), [3, 1]);
        assert_eq!(found.alpha.into_scalar::<f32>(), 1.0);
        // sigmoid(0) = 1/2 and sigmoid(2) = 0.880797.
        let expected = [[2.5 * 0.5 / 1.380797, 2.5 * 0.880797 / 1.380797]];
        let expected = Tensor::from_data(expected, &crate::compare::device());
        assert_close("weights", found.combine_weights, expected, 1e-6);
    }
}

#[test]
fn a_token_whose_scores_are_not_finite_has_no_expert_no_weight_and_no_gradient() {
    for op in [route, reference] {
        let leaf = leaf([3, 5], 4);
        let logits = leaf.clone().slice_fill([1..2, 2..3], f32::NAN);
        let found = op(logits, tensor([5], 5), 2, SUM);
        assert!(!found.alpha.is_autodiff());
        let selected = ids(found.selected);
        assert_eq!(selected[2..4], [-1, -1]);
        assert!(selected[..2].iter().chain(&selected[4..]).all(|id| (0..5).contains(id)));
        let alpha = found.alpha.into_data().try_to_vec::<f32>().expect("f32");
        assert_eq!(alpha.iter().map(|v| v.is_nan()).collect::<Vec<_>>(), [false, true, false]);
        let grads = found.combine_weights.clone().powi_scalar(2).sum().backward();
        let weights = found.combine_weights.inner().into_data().try_to_vec::<f32>().expect("f32");
        assert_eq!(weights[2..4], [0.0, 0.0]);
        let dlogits = leaf.grad(&grads).expect("dlogits").into_data();
        let dlogits = dlogits.try_to_vec::<f32>().expect("f32");
        assert_eq!(dlogits[5..10], [0.0; 5]);
        assert!(dlogits.iter().any(|v| *v != 0.0));
    }
}

#[test]
fn the_gradient_of_route_is_the_finite_difference() {
    let (bias, upstream) = (tensor::<1>([5], 7), tensor::<2>([3, 2], 8));
    // The choice must not change within a step.
    let bias = bias.mul_scalar(10.0);
    let loss = |logits: Tensor<2>| {
        (route(logits.clone(), bias.clone(), 2, SUM).combine_weights * upstream.clone()).sum()
    };
    let logits = leaf::<2>([3, 5], 6);
    let weights = route(logits.clone(), bias.clone(), 2, SUM).combine_weights;
    let grads = (weights * Tensor::from_inner(upstream.clone())).sum().backward();
    let found = logits.grad(&grads).expect("dlogits");
    assert_gradient("dlogits", loss, logits.inner(), found, 1e-2);
}

#[test]
fn route_gives_the_same_bits_on_one_and_on_three_threads() {
    assert_repeats(|| run(route, [700, 48, 4]));
}

#[test]
fn route_outside_a_graph_stays_outside() {
    let found = route(tensor([4, 6], 1), tensor([6], 2), 3, SUM);
    assert!(!found.combine_weights.is_autodiff());
    let none = route(tensor([0, 6], 1), tensor([6], 2), 3, SUM);
    assert_eq!((none.selected.dims(), none.alpha.dims()), ([0, 3], [0]));
}

#[test]
#[should_panic(expected = "route: `k` is 4, needed at least 1 and less than the 4 columns")]
fn route_needs_a_score_after_the_chosen() {
    route(tensor([2, 4], 1), tensor([4], 1), 4, SUM);
}

#[test]
#[should_panic(expected = "route: `bias` has 3 values, needed 4 as `logits` has columns")]
fn route_needs_a_bias_for_each_expert() {
    route(tensor([2, 4], 1), tensor([3], 1), 2, SUM);
}
