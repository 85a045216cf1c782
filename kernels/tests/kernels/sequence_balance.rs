use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::sequence_balance::{reference, sequence_balance};
use fulmar_kernels::top_k::top_k;

use crate::compare::{
    assert_close, assert_gradient, assert_repeats, bits, device, floats, leaf, tensor,
};

type Op = fn(Tensor<2>, Tensor<2, Int>, Tensor<1, Int>, usize) -> Tensor<1>;

fn ids(values: Vec<i32>, k: usize) -> Tensor<2, Int> {
    let shape = [values.len() / k, k];
    Tensor::from_data(TensorData::new(values, shape), &device())
}

fn valid(values: Vec<i32>) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::from(&values[..]), &device())
}

/// Spread over the columns, every fifth slot without an expert.
fn spread(t: usize, e: usize, k: usize) -> Tensor<2, Int> {
    let id = |i: usize| if i % 5 == 4 { -1 } else { ((i * (e / 2 + 1) + i / k) % e) as i32 };
    ids((0..t * k).map(id).collect(), k)
}

/// Every third token is padding, and all of the last row where there are several.
fn mostly(t: usize, seq_len: usize) -> Tensor<1, Int> {
    let last = if t > seq_len { t - seq_len } else { t };
    valid((0..t).map(|i| i32::from(i % 3 != 1 && i < last)).collect())
}

/// The result and the gradient of the logits, from a transposed view of them.
fn run(op: Op, [rows, s, e, k]: [usize; 4]) -> (Tensor<1>, Tensor<2>) {
    let t = rows * s;
    let logits = leaf([e, t], 1);
    let scaled = logits.clone().swap_dims(0, 1).mul_scalar(4.0);
    let out = op(scaled, spread(t, e, k), mostly(t, s), s);
    let upstream = Tensor::from_inner(tensor([rows], 2));
    let grads = (out.clone() * upstream).sum().backward();
    (out.inner(), logits.grad(&grads).expect("dlogits"))
}

#[test]
fn sequence_balance_matches_its_reference_in_values_and_gradients() {
    for shape in [[1, 1, 3, 2], [2, 5, 7, 2], [1, 130, 48, 4], [5, 33, 33, 8], [3, 64, 9, 1]] {
        let ((out, dlogits), expected) = (run(sequence_balance, shape), run(reference, shape));
        assert_close(&format!("{shape:?}"), out, expected.0, 1e-6);
        assert_close(&format!("dlogits {shape:?}"), dlogits, expected.1, 1e-5);
    }
}

#[test]
fn equal_choices_and_scores_give_one_and_the_same_expert_for_all_gives_their_number() {
    // Eight tokens go round four experts twice in two rows; a third row chooses expert 2 alone.
    let selected = ids([0, 1, 2, 3, 3, 2, 1, 0, 2, 2, 2, 2].to_vec(), 1);
    let mut logits = vec![0.5; 8 * 4];
    logits.extend([-30.0, -30.0, 3.0, -30.0].repeat(4));
    let logits = Tensor::<2>::from_data(TensorData::new(logits, [12, 4]), &device());
    let out = sequence_balance(logits, selected, valid(vec![1; 12]), 4);
    assert_close("losses", out, Tensor::from_data([1.0, 1.0, 4.0], &device()), 1e-6);
}

#[test]
fn padding_leaves_no_trace_and_a_row_of_it_has_no_loss() {
    let whole = floats(tensor::<2>([4, 5], 3));
    let mut padded = whole.clone();
    padded.extend([f32::NAN; 4 * 5]);
    let logits = Tensor::<2>::from_data(TensorData::new(padded, [8, 5]), &device());
    let logits = Tensor::from_inner(logits).require_grad();
    let selected = || vec![0, 1, 4, 2, 2, 0, 3, 1];
    let with_padding = ids([selected(), vec![-1, 3, -1, -1, 0, 0, 0, 0]].concat(), 2);
    for seq_len in [4, 8] {
        let token_valid = valid(vec![1, 1, 1, 1, 0, 0, 0, 0]);
        let out = sequence_balance(logits.clone(), with_padding.clone(), token_valid, seq_len);
        let short = Tensor::<2>::from_data(TensorData::new(whole.clone(), [4, 5]), &device());
        let expected = sequence_balance(short, ids(selected(), 2), valid(vec![1; 4]), 4);
        let found = floats(out.clone().inner());
        assert_eq!(found[0], floats(expected)[0]);
        assert!(found[1..].iter().all(|loss| *loss == 0.0), "{found:?}");
        let dlogits = floats(logits.grad(&out.sum().backward()).expect("dlogits"));
        assert!(dlogits[..20].iter().all(|v| v.is_finite() && *v != 0.0), "{dlogits:?}");
        assert_eq!(dlogits[20..], [0.0; 20]);
    }
}

#[test]
fn logits_far_from_zero_give_finite_losses_and_gradients() {
    let logits = [[-200.0, -150.0, -120.0], [200.0, -200.0, 90.0]];
    let logits = Tensor::from_inner(Tensor::<2>::from_data(logits, &device())).require_grad();
    let out = sequence_balance(logits.clone(), ids(vec![0, 2], 1), valid(vec![1; 2]), 1);
    let dlogits = floats(logits.grad(&out.clone().sum().backward()).expect("dlogits"));
    let losses = floats(out.inner());
    assert!(losses.iter().chain(&dlogits).all(|v| v.is_finite()), "{losses:?} {dlogits:?}");
}

#[test]
fn sequence_balance_gives_the_same_bits_on_one_and_on_three_threads() {
    assert_repeats(|| {
        let (out, dlogits) = run(sequence_balance, [3, 234, 48, 4]);
        (bits(out), bits(dlogits))
    });
}

#[test]
fn the_gradient_of_sequence_balance_is_the_finite_difference() {
    let (t, e, k) = (6, 5, 2);
    // The choices stay as they are: their part has no gradient.
    let selected = top_k(tensor([t, e], 6), k).selected;
    let loss = |logits: Tensor<2>| {
        let token_valid = valid(vec![1, 0, 1, 1, 1, 1]);
        let losses = sequence_balance(logits, selected.clone(), token_valid, 3);
        (losses * Tensor::from_data([1.0, -2.0], &device())).sum()
    };
    let logits = leaf::<2>([t, e], 6);
    let gradient = logits.grad(&loss(logits.clone()).backward()).expect("dlogits");
    assert_gradient("dlogits", loss, logits.inner(), gradient, 2e-3);
}

#[test]
fn no_rows_have_no_losses() {
    let none = Tensor::<2, Int>::zeros([0, 2], &device());
    assert_eq!(sequence_balance(tensor([0, 5], 1), none, valid(vec![]), 4).dims(), [0]);
}

#[test]
#[should_panic(expected = "sequence_balance: `selected[3]` is 5, needed -1 to 4")]
fn an_expert_out_of_range_is_named() {
    sequence_balance(tensor([2, 5], 1), ids(vec![0, -1, 1, 5], 2), valid(vec![1, 1]), 2);
}

#[test]
#[should_panic(expected = "sequence_balance: 6 tokens, needed whole rows of `seq_len` = 4")]
fn sequence_balance_needs_whole_rows() {
    sequence_balance(tensor([6, 5], 1), ids(vec![0; 6], 1), valid(vec![1; 6]), 4);
}
