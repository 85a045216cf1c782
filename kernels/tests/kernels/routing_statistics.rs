use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::routing_statistics::{RoutingStatistics, reference, routing_statistics};

use crate::compare::{assert_repeats, device, leaf, tensor};

fn ids<const D: usize>(values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), &device())
}

fn run([t, e, k]: [usize; 3]) -> RoutingStatistics {
    let selected = ids((0..t * k).map(|i| (i * 5 % e) as i32).collect(), [t, k]);
    let valid = ids((0..t).map(|t| i32::from(t % 7 != 2)).collect(), [t]);
    routing_statistics(tensor([t, e], 1).mul_scalar(5.0), selected, tensor([t], 2), valid)
}

#[test]
fn sums_of_two_tokens_are_those_of_hand() {
    let logits = Tensor::<2>::from_data([[0.0, 0.0], [f32::NAN, 9.0], [1.0, 0.0]], &device());
    let alpha = || Tensor::<1>::from_data([-0.5, f32::NAN, 0.25], &device());
    let selected = || ids(vec![1, 0, 0], [3, 1]);
    let valid = || ids(vec![1, 0, -4], [3]);
    let kernel = routing_statistics(logits.clone(), selected(), alpha(), valid());
    let plain = reference(logits, selected(), alpha(), valid()).read();
    for found in [kernel, plain] {
        assert_eq!((found.tokens, found.expert_counts), (2, vec![1, 1]));
        assert_eq!(found.margin_bounds, [-0.25, 0.75]);
        // Shares 1/2 and 1/2, then 0.731059 and 0.268941; logsumexp ln 2 and 1.313262.
        for (found, expected) in found.probability_sums.iter().zip([1.231_058_6, 0.768_941_4]) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
        let expected = std::f64::consts::LN_2.powi(2) + 1.313_261_7f64.powi(2);
        assert!((found.z_sum - expected).abs() < 1e-6, "{}, not {expected}", found.z_sum);
    }
}

#[test]
fn a_margin_that_is_not_finite_leaves_no_bounds() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        // In a block of lanes and behind it.
        for expert in [3, 17] {
            let logits = tensor([3, 18], 1).slice_fill([1..2, expert..expert + 1], value);
            let selected = ids(vec![0; 3], [3, 1]);
            let found = routing_statistics(logits, selected, tensor([3], 2), ids(vec![1; 3], [3]));
            assert!(found.margin_bounds.iter().all(|bound| bound.is_nan()), "{value} {expert}");
        }
    }
}

#[test]
fn nothing_valid_adds_up_to_nothing() {
    for t in [0, 3] {
        let logits = leaf([t, 4], 1).mul_scalar(f32::NAN);
        let selected = ids(vec![-1; t * 2], [t, 2]);
        let found = routing_statistics(logits, selected, tensor([t], 2), ids(vec![0; t], [t]));
        assert_eq!((found.tokens, found.expert_counts), (0, vec![0; 4]));
        assert_eq!((found.probability_sums, found.z_sum), (vec![0.0; 4], 0.0));
        assert_eq!(found.margin_bounds, [f32::INFINITY, f32::NEG_INFINITY]);
    }
}

#[test]
fn statistics_are_the_same_on_one_and_on_three_threads() {
    assert_repeats(|| run([1500, 37, 4]));
}

#[test]
#[should_panic(expected = "routing_statistics: `selected[2]` is 4, needed -1 to 3")]
fn an_expert_out_of_range_is_named() {
    let selected = ids(vec![0, -1, 4], [3, 1]);
    routing_statistics(tensor([3, 4], 1), selected, tensor([3], 2), ids(vec![1; 3], [3]));
}

#[test]
#[should_panic(expected = "routing_statistics: `alpha` has 2 entries, needed 3 as in `logits`")]
fn statistics_need_an_alpha_for_each_token() {
    let selected = ids(vec![0; 3], [3, 1]);
    routing_statistics(tensor([3, 4], 1), selected, tensor([2], 2), ids(vec![1; 3], [3]));
}
