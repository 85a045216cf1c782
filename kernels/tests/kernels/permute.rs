use burn::tensor::{Tensor, TensorData};
use fulmar_kernels::permute::{
    RowMap, combine_parts, combine_reference, combine_rows, dispatch_reference, dispatch_rows,
};

use crate::compare::{
    assert_close, assert_repeats, assert_same_bits, device, floats, leaf, tensor,
};

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
    RowMap::new(
        Tensor::from_data(TensorData::new(row_of, shape), &device()),
        Tensor::from_data(TensorData::new(assignment_of, rows), &device()),
    )
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

type Combine = fn(Vec<Tensor<2>>, Tensor<2>, &RowMap) -> Tensor<2>;

/// The rows in `num_parts` tensors, of which every third is empty: the sum, the gradient of the
/// weights and those of the parts.
fn combine_run(op: Combine, size: [usize; 4], num_parts: usize) -> Vec<Tensor<2>> {
    let [tokens, slots, rows, dim] = size;
    let ends = (0..=num_parts).map(|part| if part % 3 == 1 { part - 1 } else { part });
    let ends: Vec<usize> = ends.map(|part| part * rows / num_parts).collect();
    let of_part =
        |part: usize| if part + 1 == num_parts { rows } else { ends[part + 1] } - ends[part];
    let parts: Vec<_> =
        (0..num_parts).map(|part| leaf([dim, of_part(part)], 3 + 10 * part as u64)).collect();
    let weights = leaf([slots, tokens], 4);
    let views = parts.iter().map(|part| part.clone().swap_dims(0, 1)).collect();
    let out = op(views, weights.clone().swap_dims(0, 1), &map(tokens, slots, rows));
    let upstream = Tensor::from_inner(tensor([tokens, dim], 5));
    let grads = (out.clone() * upstream).sum().backward();
    let grad = |leaf: &Tensor<2>| leaf.grad(&grads).expect("a gradient");
    [out.inner(), grad(&weights)].into_iter().chain(parts.iter().map(grad)).collect()
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
fn combine_parts_matches_its_reference_in_values_and_gradients() {
    for (tokens, slots, rows, dim) in SIZES {
        let size = [tokens, slots, rows, dim];
        // More than four are joined first.
        for num_parts in 1..=6 {
            let found = combine_run(combine_parts, size, num_parts);
            let expected = combine_run(combine_reference, size, num_parts);
            for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let name = format!("result {i} at {size:?} in {num_parts} parts");
                assert_close(&name, found, expected, 1e-6);
            }
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
    for op in [combine_parts, combine_reference] {
        let map = row_map(vec![1, -1], vec![-1, 0], 2);
        let tracked = |data: [[f32; 2]; 1]| {
            Tensor::from_inner(Tensor::<2>::from_data(data, &device())).require_grad()
        };
        let y = tracked([[f32::NAN, 2.0]]);
        let weights = tracked([[3.0, f32::NAN]]);
        let out = op(vec![y.clone().swap_dims(0, 1)], weights.clone(), &map);
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
        let tensors = tensors.chain(combine_run(combine_parts, size, 3));
        tensors.map(|t| t.into_data()).collect::<Vec<_>>()
    };
    assert_repeats(run);
}

#[test]
fn the_gradient_of_combine_rows_is_the_finite_difference() {
    let size = [5, 2, 9, 3];
    let dweights = combine_run(combine_parts, size, 1).swap_remove(1);
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
fn a_sum_has_the_same_bits_in_however_many_parts_its_rows_lie() {
    let [tokens, slots, rows, dim] = [130, 4, 400, 33];
    let (y, weights) = (tensor::<2>([rows, dim], 1), tensor([tokens, slots], 2));
    let map = map(tokens, slots, rows);
    let whole = combine_rows(y.clone(), weights.clone(), &map);
    for ends in [vec![0, 100, 250, 400], vec![0, 0, 399, 400]] {
        let parts = ends.windows(2).map(|ends| y.clone().slice([ends[0]..ends[1], 0..dim]));
        let found = combine_parts(parts.collect(), weights.clone(), &map);
        assert_same_bits(&format!("{ends:?}"), &found, &whole);
    }
}

#[test]
fn a_map_from_rows_goes_both_ways_and_back() {
    let map = RowMap::from_rows(vec![2, -1, 0, 3], 2, 5, &device());
    map.validate().expect("two directions that agree");
    assert_eq!((map.tokens(), map.slots(), map.rows()), (2, 2, 5));
    let back = RowMap::from_rows(vec![2, -1, 0, 3], 1, 5, &device()).transposed();
    back.validate().expect("two directions that agree");
    assert_eq!((back.tokens(), back.slots(), back.rows()), (5, 1, 4));
    let x = tensor([5, 3], 1);
    assert_same_bits(
        "picked",
        &dispatch_rows(x.clone(), &back).narrow(0, 0, 1),
        &x.narrow(0, 2, 1),
    );
}

#[test]
#[should_panic(expected = "row_map: `row_of[3]` is 5, needed -1 to 4")]
fn a_row_that_does_not_exist_is_named() {
    RowMap::from_rows(vec![2, -1, 0, 5], 2, 5, &device());
}

#[test]
#[should_panic(expected = "row_map: `row_of[2]` is 2, as is another")]
fn a_row_that_is_taken_twice_is_named() {
    RowMap::from_rows(vec![2, -1, 2, 3], 2, 5, &device());
}

#[test]
#[should_panic(expected = "row_map: 3 assignments are not 2 a token")]
fn half_a_token_is_named() {
    RowMap::from_rows(vec![2, -1, 0], 2, 5, &device());
}

#[test]
fn a_map_whose_directions_disagree_is_refused() {
    let error = row_map(vec![0, -1], vec![1], 2).validate().expect_err("one way");
    assert_eq!(error.to_string(), "row_map: `row_of[0]` is 0, whose own entry does not point back");
}
