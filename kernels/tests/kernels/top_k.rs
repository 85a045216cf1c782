use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::top_k::{TopK, reference, top_k};

use crate::compare::{device, in_pool, leaf, tensor};

/// Ids and the bits of `next`.
fn read(out: TopK) -> (Vec<i32>, Vec<u32>) {
    let next = out.next.into_data().try_to_vec::<f32>().expect("f32");
    (ids(out.selected), next.into_iter().map(f32::to_bits).collect())
}

fn ids(selected: Tensor<2, Int>) -> Vec<i32> {
    selected.into_data().try_to_vec::<i32>().expect("i32")
}

fn rows<const E: usize>(rows: &[[f32; E]]) -> Tensor<2> {
    let data = TensorData::new(rows.concat(), [rows.len(), E]);
    Tensor::from_data(data, &device())
}

#[test]
fn top_k_matches_its_reference() {
    for (t, e, k) in [(1, 2, 1), (5, 7, 6), (65, 16, 4), (200, 33, 8)] {
        let scores = tensor::<2>([t, e], 1);
        // A coarse grid gives many ties.
        for scores in [scores.clone(), scores.mul_scalar(3.0).round()] {
            assert_eq!(read(top_k(scores.clone(), k)), read(reference(scores.clone(), k)));
            let view = scores.swap_dims(0, 1).mul_scalar(1.0).swap_dims(0, 1);
            assert_eq!(read(top_k(view.clone(), k)), read(reference(view, k)));
        }
    }
}

#[test]
fn top_k_of_no_rows_is_empty() {
    let out = top_k(tensor([0, 3], 1), 2);
    assert_eq!((out.selected.dims(), out.next.dims()), ([0, 2], [0]));
}

#[test]
fn equal_scores_go_to_the_lowest_id() {
    let out = top_k(rows(&[[1.0, 3.0, 3.0, 0.0, 3.0], [2.0, 2.0, 2.0, 2.0, 2.0]]), 2);
    assert_eq!(read(out), (vec![1, 2, 0, 1], vec![3.0f32.to_bits(), 2.0f32.to_bits()]));
}

#[test]
fn a_row_that_is_not_finite_chooses_nothing() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for op in [top_k, reference] {
            let out = op(rows(&[[1.0, bad, 3.0], [f32::MIN, f32::MAX, 0.0]]), 1);
            let next = out.next.into_data().try_to_vec::<f32>().expect("f32");
            assert_eq!(ids(out.selected), [-1, 1], "{bad}");
            assert!(next[0].is_nan() && next[1] == 0.0, "{bad}: {next:?}");
        }
    }
}

#[test]
fn a_tracked_tensor_is_taken_by_value() {
    let scores = leaf::<2>([4, 6], 1).mul_scalar(2.0);
    let found = top_k(scores.clone(), 2);
    assert!(!found.next.is_autodiff() && !found.selected.is_autodiff());
    assert_eq!(read(found), read(reference(scores.inner(), 2)));
}

#[test]
fn top_k_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    let once = || read(top_k(tensor([300, 33], 1), 4));
    assert_eq!(in_pool(1, once), once());
    assert_eq!(in_pool(3, once), once());
}

#[test]
#[should_panic(expected = "top_k: `k` is 3 for `scores` of shape [2, 3], needed 1 to 2")]
fn top_k_refuses_to_choose_every_score() {
    top_k(tensor([2, 3], 1), 3);
}
