use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::permute::{
    RowMap, combine_reference, combine_rows, dispatch_reference, dispatch_rows,
};

use crate::compare::{assert_close, assert_repeats, device, floats, leaf, tensor};

/// `tokens * slots` assignments scattered over `rows`: every fourth is dropped, and so is what
/// does not fit; rows no assignment reaches stay empty.
fn map(tokens: usize, slots: usize, rows: usize) -> RowMap {
    let stride = (rows / 2..).find(|&s| s > 0 && gcd(s, rows.max(1)) == 1).expect("a stride");
    let mut row_of = vec![-1i32; tokens * slots];
    let mut assignment_of = vec![-1i32; rows];
    let kept = (0..tokens * slots).filter(|assignment| assignment % 4 != 3);
    for (i, assignment) in kept.enumerate().take(rows * 9 / 10) {
        let row = i * stride % rows;
        row_of[assignment] = row as i32;
        assignment_of[row] = assignment as i32;
    }
    row_map(row_of, assignment_of, slots)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn row_map(row_of: Vec<i32>, assignment_of: Vec<i32>, slots: usize) -> RowMap {
    let shape = [row_of.len() / slots, slots];
    let rows = [assignment_of.len()];
    RowMap {
        row_of: Tensor::<2, Int>::from_data(TensorData::new(row_of, shape), &device()),
        assignment_of: Tensor::<1, Int>::from_data(TensorData::new(assignment_of, rows), &device()),
    }
}

const SIZES: [(usize, usize, usize, usize); 6] =
    [(1, 1, 1, 3), (5, 2, 9, 7), (130, 4, 400, 33), (70, 3, 300, 16), (6, 2, 0, 5), (0, 2, 3, 5)];

fn dispatch_run(op: fn(Tensor<2>, &RowMap) -> Tensor<2>, size: [usize; 4]) -> [Tensor<2>; 2] {
    let [tokens, slots, rows, dim] = size;
    let x = leaf([dim, tokens], 1);
    let out = op(x.clone().swap_dims(0, 1), &map(tokens, slots, rows));
    let upstream = Tensor::from_inner(tensor([dim, rows], 2)).swap_dims(0, 1);
    let grads = (out.clone() * upstream).sum().backward();
    [out.inner(), x.grad(&grads).expect("dx")]
}

type Combine = fn(Tensor<2>, Tensor<2>, &RowMap) -> Tensor<2>;

fn combine_run(op: Combine, size: [usize; 4]) -> [Tensor<2>; 3] {
    let [tokens, slots, rows, dim] = size;
    let (y, weights) = (leaf([dim, rows], 3), leaf([slots, tokens], 4));
    let map = map(tokens, slots, rows);
    let out = op(y.clone().swap_dims(0, 1), weights.clone().swap_dims(0, 1), &map);
    let upstream = Tensor::from_inner(tensor([tokens, dim], 5));
    let grads = (out.clone() * upstream).sum().backward();
    [out.inner(), y.grad(&grads).expect("dy"), weights.grad(&grads).expect("dweights")]
}

#[test]
fn dispatch_rows_matches_its_reference_in_values_and_gradients() {
    for (tokens, slots, rows, dim) in SIZES {
        let size = [tokens, slots, rows, dim];
        let found = dispatch_run(dispatch_rows, size);
        let expected = dispatch_run(dispatch_reference, size);
        for ((name, found), expected) in ["out", "dx"].iter().zip(found).zip(expected) {
            assert_close(&format!("{name} at {size:?}"), found, expected, 1e-6);
        }
    }
}

#[test]
fn combine_rows_matches_its_reference_in_values_and_gradients() {
    for (tokens, slots, rows, dim) in SIZES {
        let size = [tokens, slots, rows, dim];
        let found = combine_run(combine_rows, size);
        let expected = combine_run(combine_reference, size);
        for ((name, found), expected) in ["out", "dy", "dw"].iter().zip(found).zip(expected) {
            assert_close(&format!("{name} at {size:?}"), found, expected, 1e-6);
        }
    }
}

#[test]
fn dispatched_rows_have_the_values_of_their_tokens() {
    let map = row_map(vec![2, -1, 0, 3], vec![2, -1, 0, 3], 2);
    map.validate().expect("a map whose two directions agree");
    let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device());
    let y = dispatch_rows(x, &map);
    let expected = [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0], [3.0, 4.0]];
    assert_close("rows", y.clone(), Tensor::from_data(expected, &device()), 0.0);
    let weights = Tensor::<2>::from_data([[0.5, 9.0], [2.0, 3.0]], &device());
    let expected = [[0.5, 1.0], [15.0, 20.0]];
    assert_close(
        "sum",
        combine_rows(y, weights, &map),
        Tensor::from_data(expected, &device()),
        0.0,
    );
}

#[test]
fn a_dropped_slot_does_not_see_its_weight_or_an_empty_row() {
    for op in [combine_rows, combine_reference] {
        let map = row_map(vec![1, -1], vec![-1, 0], 2);
        let tracked = |data: [[f32; 2]; 1]| {
            Tensor::from_inner(Tensor::<2>::from_data(data, &device())).require_grad()
        };
        let y = tracked([[f32::NAN, 2.0]]);
        let weights = tracked([[3.0, f32::NAN]]);
        let out = op(y.clone().swap_dims(0, 1), weights.clone(), &map);
        let grads = out.clone().sum().backward();
        let exact = |found: Tensor<2>, expected: &[f32]| {
            assert_eq!(floats(found), expected);
        };
        exact(out.inner(), &[6.0]);
        exact(y.grad(&grads).expect("dy"), &[0.0, 3.0]);
        exact(weights.grad(&grads).expect("dweights"), &[2.0, 0.0]);
    }
}

#[test]
fn permuting_gives_the_same_bits_on_one_and_on_three_threads() {
    let run = || {
        let size = [300, 4, 1000, 37];
        let tensors = dispatch_run(dispatch_rows, size).into_iter();
        let tensors = tensors.chain(combine_run(combine_rows, size));
        tensors.map(|t| t.into_data()).collect::<Vec<_>>()
    };
    assert_repeats(run);
}

#[test]
fn the_gradient_of_combine_rows_is_the_finite_difference() {
    let size = [5, 2, 9, 3];
    let [_, _, dweights] = combine_run(combine_rows, size);
    let loss = |delta: f32| {
        let mut weights = tensor::<2>([2, 5], 4).into_data().try_to_vec::<f32>().expect("f32");
        weights[6] += delta;
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [2, 5]), &device());
        let y = tensor([3, 9], 3).swap_dims(0, 1);
        let out = combine_rows(y, weights.swap_dims(0, 1), &map(5, 2, 9));
        (out * tensor([5, 3], 5)).sum().into_scalar::<f32>()
    };
    let slope = (loss(0.125) - loss(-0.125)) / 0.25;
    let found = floats(dweights)[6];
    assert!((found - slope).abs() < 1e-4, "found {found}, slope {slope}");
}

#[test]
#[should_panic(expected = "dispatch_rows: `assignment_of[1]` is 4, needed -1 to 3")]
fn an_assignment_out_of_range_is_named() {
    let map = row_map(vec![0, -1, -1, -1], vec![0, 4], 2);
    dispatch_rows(tensor([2, 3], 1), &map);
}

#[test]
#[should_panic(expected = "combine_rows: `row_of[3]` is -2, needed -1 to 1")]
fn a_row_out_of_range_is_named() {
    let map = row_map(vec![0, -1, -1, -2], vec![0, -1], 2);
    combine_rows(tensor([2, 3], 1), tensor([2, 2], 2), &map);
}

#[test]
fn a_map_whose_directions_disagree_is_refused() {
    let error = row_map(vec![0, -1], vec![1], 2).validate().expect_err("one way");
    assert_eq!(error.to_string(), "row_map: `row_of[0]` is 0, whose own entry does not point back");
}
