use burn::tensor::{Tensor, TensorData};
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu, reference};

use crate::compare::{assert_close, assert_repeats, device, floats, leaf, tensor};

type Op = fn(Tensor<2>, Tensor<3>, Tensor<3>, Tensor<3>, &Groups) -> Tensor<2>;

/// The result and the gradients of x, gate, up and down, all flat; every input is a strided view.
fn run(op: Op, groups: &Groups, c: usize, f: usize) -> [Tensor<1>; 5] {
    let (rows, g) = (groups.rows(), groups.num_groups());
    let (x, w_gate) = (leaf([c, rows], 1), leaf([g, f, c], 2));
    let (w_up, w_down) = (leaf([g, f, c], 3), leaf([g, c, f], 4));
    let view = |w: &Tensor<3>| w.clone().swap_dims(1, 2);
    let out = op(x.clone().swap_dims(0, 1), view(&w_gate), view(&w_up), view(&w_down), groups);
    let upstream = Tensor::from_inner(tensor([c, rows], 5)).swap_dims(0, 1);
    let grads = (out.clone() * upstream).sum().backward();
    let of = |w: &Tensor<3>| w.grad(&grads).expect("a weight gradient").flatten(0, 2);
    let dx = x.grad(&grads).expect("dx").flatten(0, 1);
    [out.inner().flatten(0, 1), dx, of(&w_gate), of(&w_up), of(&w_down)]
}

fn scattered() -> Groups {
    Groups::new(vec![40, 0, 12, 3, 20], vec![9, 3, 0, 7, 17], 60).expect("disjoint ranges")
}

#[test]
fn grouped_swiglu_matches_its_reference_in_values_and_gradients() {
    let cases = [
        (Groups::from_counts(&[1]), 1, 1),
        (Groups::from_counts(&[3, 0, 5, 300, 1]), 7, 5),
        (Groups::from_counts(&[33, 513]), 16, 24),
        (Groups::from_counts(&[0, 0]), 4, 3),
        (scattered(), 9, 12),
        // Groups of few rows with widths of whole cache lines, on both sides of the limit.
        (Groups::from_counts(&[1, 0, 6, 17, 32, 33, 40]), 80, 48),
        (scattered(), 16, 64),
    ];
    for (groups, c, f) in cases {
        let found = run(grouped_swiglu, &groups, c, f);
        let expected = run(reference, &groups, c, f);
        let names = ["out", "dx", "d_gate", "d_up", "d_down"];
        for ((name, found), expected) in names.iter().zip(found).zip(expected) {
            assert_close(&format!("{name} of {groups:?}"), found, expected, 1e-5);
        }
    }
}

#[test]
fn rows_of_no_group_are_zero_and_an_empty_group_has_no_gradient() {
    let (groups, c, f) = (scattered(), 3, 4);
    let [out, dx, d_gate, d_up, d_down] = run(grouped_swiglu, &groups, c, f).map(floats);
    let mut dx_by_row = vec![0.0; dx.len()];
    for row in 0..60 {
        for col in 0..c {
            dx_by_row[row * c + col] = dx[col * 60 + row];
        }
    }
    for row in [10, 19, 37, 39, 49, 59] {
        assert!(out[row * c..][..c].iter().all(|&v| v == 0.0), "out row {row}");
        assert!(dx_by_row[row * c..][..c].iter().all(|&v| v == 0.0), "dx row {row}");
    }
    for grad in [d_gate, d_up, d_down] {
        assert!(grad[2 * c * f..3 * c * f].iter().all(|&v| v == 0.0));
        assert!(grad[3 * c * f..4 * c * f].iter().all(|&v| v != 0.0));
    }
}

#[test]
fn grouped_swiglu_gives_the_same_bits_on_one_and_on_three_threads() {
    let groups = Groups::from_counts(&[700, 0, 31, 1, 260]);
    for f in [33, 64] {
        assert_repeats(|| run(grouped_swiglu, &groups, 48, f).map(|t| t.into_data()));
    }
}

#[test]
fn an_untracked_call_gives_the_bits_of_a_tracked_one() {
    let groups = Groups::from_counts(&[3, 270]);
    let [tracked, ..] = run(grouped_swiglu, &groups, 6, 5);
    let view = |salt| tensor([2, 5, 6], salt).swap_dims(1, 2);
    let x = tensor([6, 273], 1).swap_dims(0, 1);
    let w_down = tensor([2, 6, 5], 4).swap_dims(1, 2);
    let out = grouped_swiglu(x, view(2), view(3), w_down, &groups);
    assert_eq!(out.flatten::<1>(0, 1).into_data(), tracked.into_data());
}

#[test]
fn the_gradient_of_grouped_swiglu_is_the_finite_difference() {
    let groups = Groups::from_counts(&[2, 3]);
    let [_, _, d_gate, ..] = run(grouped_swiglu, &groups, 3, 2);
    let loss = |delta: f32| {
        let mut w_gate = tensor::<3>([2, 2, 3], 2).into_data().try_to_vec::<f32>().expect("f32");
        w_gate[7] += delta;
        let w_gate = Tensor::<3>::from_data(TensorData::new(w_gate, [2, 2, 3]), &device());
        let x = tensor([3, 5], 1).swap_dims(0, 1);
        let (w_up, w_down) = (tensor([2, 2, 3], 3), tensor([2, 3, 2], 4));
        let [w_gate, w_up, w_down] = [w_gate, w_up, w_down].map(|w: Tensor<3>| w.swap_dims(1, 2));
        let out = grouped_swiglu(x, w_gate, w_up, w_down, &groups);
        (out * tensor([3, 5], 5).swap_dims(0, 1)).sum().into_scalar::<f32>()
    };
    let slope = (loss(0.01) - loss(-0.01)) / 0.02;
    let found = floats(d_gate)[7];
    assert!((found - slope).abs() < 1e-3, "found {found}, slope {slope}");
}

#[test]
fn groups_that_do_not_fit_are_refused() {
    let message = |starts: &[usize], lens: &[usize]| {
        Groups::new(starts.to_vec(), lens.to_vec(), 10).expect_err("refused").to_string()
    };
    assert_eq!(
        message(&[0], &[1, 2]),
        "grouped_swiglu: `lens` has shape [2], needed [1], one for each of `starts`"
    );
    assert_eq!(message(&[0, 4], &[2, 7]), "grouped_swiglu: `lens[1]` is 7, needed 0 to 6");
    assert_eq!(message(&[11], &[0]), "grouped_swiglu: `starts[0]` is 11, needed 0 to 10");
    assert_eq!(
        message(&[5, 0, 2], &[2, 3, 1]),
        "grouped_swiglu: groups 1 and 2 share rows, needed disjoint ranges"
    );
}

#[test]
#[should_panic(expected = "grouped_swiglu: `w_down` is [1, 2, 4], needed [1, 4, 2]")]
fn a_matrix_of_the_wrong_shape_is_named() {
    let w = || tensor([1, 2, 4], 1);
    grouped_swiglu(tensor([3, 2], 1), w(), w(), w(), &Groups::from_counts(&[3]));
}
