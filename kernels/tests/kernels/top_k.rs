use burn::tensor::{Tensor, TensorData};
use fulmar_kernels::top_k::{TopK, reference, top_k};

use crate::compare::{assert_repeats, device, floats, tensor, values};

/// Ids, and the bits of the next scores: NaN compares too.
fn read(found: TopK) -> (Vec<i64>, Vec<u32>) {
    let next = floats(found.next);
    let next = next.into_iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect();
    (found.selected.into_data().iter::<i64>().collect(), next)
}

fn rows<const E: usize>(rows: &[[f32; E]]) -> Tensor<2> {
    let flat = rows.iter().flatten().copied().collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(flat, [rows.len(), E]), &device())
}

#[test]
fn top_k_matches_its_reference() {
    for (t, e, k) in [(1, 2, 1), (3, 7, 6), (65, 48, 4), (130, 33, 8)] {
        let scores = tensor([t, e], 1);
        assert_eq!(read(top_k(scores.clone(), k)), read(reference(scores, k)), "{t} {e} {k}");
    }
}

#[test]
fn top_k_reads_a_transposed_view_as_its_values() {
    let view = tensor([9, 70], 2).swap_dims(0, 1);
    assert_eq!(read(top_k(view.clone(), 3)), read(reference(view, 3)));
}

#[test]
fn of_equal_scores_the_lowest_id_comes_first() {
    let scores = rows(&[[1.0, 2.0, 2.0, 1.0, 2.0], [0.0, -0.0, 0.0, -0.0, 0.0]]);
    for op in [top_k, reference] {
        let found = op(scores.clone(), 3);
        assert_eq!(
            found.selected.into_data().iter::<i64>().collect::<Vec<_>>(),
            [1, 2, 4, 0, 1, 2]
        );
        assert_eq!(floats(found.next), [1.0, 0.0]);
    }
    // Few distinct values, so that ties cross the boundary between selected and next.
    let coarse = values(200 * 12, 3).into_iter().map(|v| (v * 2.0).round()).collect::<Vec<_>>();
    let coarse = Tensor::<2>::from_data(TensorData::new(coarse, [200, 12]), &device());
    let (ids, next) = read(top_k(coarse.clone(), 5));
    let (ids_ref, next_ref) = read(reference(coarse, 5));
    assert_eq!(ids, ids_ref);
    let value = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect::<Vec<_>>();
    assert_eq!(value(next), value(next_ref));
}

#[test]
fn a_row_with_a_score_that_is_not_finite_selects_no_expert() {
    let scores = rows(&[
        [1.0, f32::NAN, 3.0],
        [1.0, 2.0, 3.0],
        [f32::INFINITY, 2.0, 3.0],
        [1.0, 2.0, f32::NEG_INFINITY],
        [f32::NAN; 3],
        [f32::NEG_INFINITY; 3],
        [f32::MAX, -f32::MAX, 0.0],
    ]);
    for op in [top_k, reference] {
        let (ids, next) = read(op(scores.clone(), 2));
        assert_eq!(ids, [-1, -1, 2, 1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 2]);
        let none = u32::MAX;
        let (one, least) = (1.0f32.to_bits(), (-f32::MAX).to_bits());
        assert_eq!(next, [none, one, none, none, none, none, least]);
    }
}

#[test]
fn top_k_leaves_the_graph_of_its_input() {
    let scores = tensor::<2>([4, 6], 4);
    let tracked = Tensor::from_inner(scores.clone()).require_grad();
    let found = top_k(tracked.mul_scalar(1.0), 2);
    assert!(!found.next.is_autodiff());
    assert_eq!(read(found), read(top_k(scores, 2)));
}

#[test]
fn top_k_of_no_tokens_is_empty() {
    let found = top_k(tensor([0, 5], 1), 2);
    assert_eq!((found.selected.dims(), found.next.dims()), ([0, 2], [0]));
}

#[test]
fn top_k_gives_the_same_bits_on_one_and_on_three_threads() {
    let run = || read(top_k(tensor([1000, 37], 5), 4));
    assert_repeats(run);
}

#[test]
#[should_panic(expected = "top_k: `k` is 4, needed at least 1 and less than the 4 columns")]
fn top_k_needs_a_score_after_the_selected() {
    top_k(tensor([2, 4], 1), 4);
}
