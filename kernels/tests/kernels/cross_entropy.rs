use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::cross_entropy::{
    CrossEntropy, cross_entropy, reference, token_losses, token_losses_reference,
};

use crate::compare::{
    assert_close, assert_gradient, assert_repeats, assert_same_bits, bits, device, floats, leaf,
    tensor,
};

type Op = fn(Tensor<2>, Tensor<2>, Tensor<1, Int>, Tensor<1>, f64) -> CrossEntropy;

const Z: f64 = 1e-2;

fn one(data: Vec<f32>) -> Tensor<1> {
    let len = data.len();
    Tensor::from_data(TensorData::new(data, [len]), &device())
}

/// Targets over the whole vocabulary, and 0.5 to 1.5 as weights.
fn labels(t: usize, v: usize) -> (Tensor<1, Int>, Tensor<1>) {
    let ids: Vec<i32> = (0..t).map(|i| ((i * 7919 + v - 1) % v) as i32).collect();
    let targets = Tensor::from_data(TensorData::new(ids, [t]), &device());
    (targets, tensor::<1>([t], 9).mul_scalar(0.5).add_scalar(1.0))
}

/// As [`labels`], but every third token has weight 0 and a target that means nothing.
fn labels_with_gaps(t: usize, v: usize) -> (Tensor<1, Int>, Tensor<1>) {
    let (targets, weight) = labels(t, v);
    let mut ids = targets.into_data().try_to_vec::<i32>().expect("i32");
    let mut weight = floats(weight);
    for i in (0..t).step_by(3) {
        (ids[i], weight[i]) = (-100, 0.0);
    }
    (Tensor::from_data(TensorData::new(ids, [t]), &device()), one(weight))
}

struct Run {
    sums: [Tensor<1>; 3],
    gradients: [Tensor<2>; 2],
}

fn run(op: Op, [t, d, v]: [usize; 3], labels: (Tensor<1, Int>, Tensor<1>), flip: bool) -> Run {
    let view = |x: &Tensor<2>| if flip { x.clone().swap_dims(0, 1) } else { x.clone() };
    let place = |[m, n]: [usize; 2]| if flip { [n, m] } else { [m, n] };
    let (hidden, head) = (leaf(place([t, d]), 1), leaf(place([d, v]), 2));
    let out = op(view(&hidden), view(&head), labels.0, labels.1, Z);
    assert!(!out.cross_entropy_sum.is_autodiff() && !out.z_sum.is_autodiff());
    // A factor after the loss must reach both gradients.
    let grads = out.total.clone().mul_scalar(0.25).backward();
    let gradients = [&hidden, &head].map(|x| x.grad(&grads).expect("a gradient"));
    Run { sums: [out.total.inner(), out.cross_entropy_sum, out.z_sum], gradients }
}

fn assert_runs_agree(name: &str, found: Run, expected: Run) {
    for (found, expected) in found.sums.into_iter().zip(expected.sums) {
        assert_close(name, found, expected, 3e-6);
    }
    for (found, expected) in found.gradients.into_iter().zip(expected.gradients) {
        assert_close(name, found, expected, 1e-5);
    }
}

#[test]
fn cross_entropy_matches_its_reference_in_values_and_gradients() {
    for shape in [[1, 3, 5], [1, 1, 1], [2, 8, 257], [65, 12, 300], [200, 33, 1031]] {
        let [t, _, v] = shape;
        for (labels, kind) in [(labels(t, v), "all"), (labels_with_gaps(t, v), "gaps")] {
            for flip in [false, true] {
                let found = run(cross_entropy, shape, labels.clone(), flip);
                let expected = run(reference, shape, labels.clone(), flip);
                assert_runs_agree(&format!("{shape:?} {kind} {flip}"), found, expected);
            }
        }
    }
}

#[test]
fn several_buffers_of_logits_add_up() {
    // 533 tokens count, and 480 fill the buffer: five groups and 17 blocks of the vocabulary.
    let shape = [800, 4, 8_200];
    let labels = labels_with_gaps(shape[0], shape[2]);
    let found = run(cross_entropy, shape, labels.clone(), false);
    assert_runs_agree("several buffers", found, run(reference, shape, labels, false));
}

#[test]
fn cross_entropy_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    assert_repeats(|| {
        let found = run(cross_entropy, [300, 33, 1031], labels_with_gaps(300, 1031), false);
        (found.sums.map(bits), found.gradients.map(bits))
    });
}

#[test]
fn its_gradients_are_finite_differences() {
    let (hidden, head) = (leaf::<2>([3, 4], 1), leaf::<2>([4, 5], 2));
    let (targets, weight) = labels_with_gaps(3, 5);
    let loss = |hidden, head| {
        // A large coefficient, so that an error of the z-loss shows.
        cross_entropy(hidden, head, targets.clone(), weight.clone(), 0.5).total
    };
    let grads = loss(hidden.clone(), head.clone()).backward();
    let dhidden = hidden.grad(&grads).expect("dhidden");
    let dhead = head.grad(&grads).expect("dhead");
    let (hidden, head) = (hidden.inner(), head.inner());
    assert_gradient("dhidden", |x| loss(x, head.clone()), hidden.clone(), dhidden, 1e-3);
    assert_gradient("dhead", |x| loss(hidden.clone(), x), head, dhead, 1e-3);
}

#[test]
fn weights_of_zero_give_a_total_and_gradients_of_zero() {
    let (targets, weight) = labels(5, 7);
    let found = run(cross_entropy, [5, 3, 7], (targets, weight.mul_scalar(0.0)), false);
    assert_eq!(found.sums.map(floats), [[0.0], [0.0], [0.0]]);
    for gradient in found.gradients {
        assert!(floats(gradient).iter().all(|&g| g == 0.0));
    }
}

#[test]
fn a_token_of_weight_zero_adds_nothing_even_if_it_is_nan() {
    let targets = || Tensor::<1, Int>::from_data([1, 99, 2], &device());
    let weight = || one(vec![1.0, 0.0, 2.0]);
    let head = leaf::<2>([2, 4], 2);
    let hidden = |middle| {
        let rows = [[0.1, 0.2], [middle, 0.0], [0.3, -0.4]];
        Tensor::<2>::from_data(rows, &device()).autodiff().require_grad()
    };
    let all = |op: Op, hidden: Tensor<2>| {
        let out = op(hidden.clone(), head.clone(), targets(), weight(), Z);
        let grads = out.total.backward();
        let (dhidden, dhead) = (hidden.grad(&grads), head.grad(&grads));
        [floats(out.total.inner()), floats(dhidden.expect("dx")), floats(dhead.expect("dw"))]
    };
    for op in [cross_entropy as Op, reference] {
        let found = all(op, hidden(f32::NAN));
        assert_eq!(found, all(op, hidden(0.0)));
        assert_eq!(found[1][2..4], [0.0, 0.0]);
    }
}

#[test]
fn logits_of_ten_thousand_stay_finite() {
    let hidden = Tensor::<2>::from_data([[1e4], [-1e4]], &device()).autodiff().require_grad();
    let head = Tensor::<2>::from_data([[1.0, -1.0, 0.5]], &device()).autodiff().require_grad();
    let targets = Tensor::<1, Int>::from_data([0, 0], &device());
    let out = cross_entropy(hidden.clone(), head.clone(), targets, one(vec![1.0, 1.0]), 1e-4);
    let grads = out.total.backward();
    // Row 0 is certain and right; row 1 is certain of id 1 and loses 2e4.
    assert_eq!(floats(out.cross_entropy_sum), [2e4]);
    assert_eq!(floats(out.z_sum), [2e8]);
    for gradient in [hidden.grad(&grads), head.grad(&grads)] {
        assert!(floats(gradient.expect("a gradient")).iter().all(|g| g.is_finite()));
    }
}

#[test]
fn one_tracked_input_is_enough_and_none_is_fine() {
    let (targets, weight) = labels(4, 6);
    let (hidden, head) = (leaf::<2>([4, 3], 1), leaf::<2>([3, 6], 2));
    let loss = |hidden, head| cross_entropy(hidden, head, targets.clone(), weight.clone(), Z).total;
    let both = loss(hidden.clone(), head.clone());
    let expected = hidden.grad(&both.backward()).expect("dhidden");
    let only = loss(hidden.clone(), head.clone().inner());
    let found = hidden.grad(&only.backward()).expect("dhidden");
    assert_same_bits("dhidden", &found, &expected);
    let untracked = loss(hidden.inner(), head.inner());
    assert_same_bits("total", &untracked, &both.inner());
}

#[test]
fn token_losses_match_their_reference() {
    for [t, d, v] in [[1, 3, 5], [65, 12, 300], [200, 33, 1031]] {
        let (targets, _) = labels(t, v);
        let (hidden, head) = (leaf::<2>([t, d], 1), tensor::<2>([d, v], 2));
        let found = token_losses(hidden.clone(), head.clone(), targets.clone());
        assert!(!found.nll.is_autodiff() && !found.log_sum_exp.is_autodiff());
        let expected = token_losses_reference(hidden.inner(), head, targets);
        assert_close("nll", found.nll, expected.nll, 1e-6);
        assert_close("log_sum_exp", found.log_sum_exp, expected.log_sum_exp, 1e-6);
    }
}

#[test]
#[should_panic(
    expected = "cross_entropy: `targets` has id 5 in row 2 with weight, needed an id below 5"
)]
fn a_target_outside_the_vocabulary_is_refused() {
    let targets = Tensor::<1, Int>::from_data([0, 4, 5], &device());
    cross_entropy(tensor([3, 2], 1), tensor([2, 5], 2), targets, one(vec![1.0; 3]), Z);
}

#[test]
#[should_panic(expected = "token_losses: `targets` has id -1 in row 0")]
fn every_target_counts_in_token_losses() {
    let targets = Tensor::<1, Int>::from_data([-1, 4, 4], &device());
    token_losses(tensor([3, 2], 1), tensor([2, 5], 2), targets);
}

#[test]
#[should_panic(expected = "cross_entropy: `head` has shape [3, 5], needed [2, v] as `hidden`")]
fn a_head_of_another_width_is_refused() {
    let (targets, weight) = labels(3, 5);
    cross_entropy(tensor([3, 2], 1), tensor([3, 5], 2), targets, weight, Z);
}
