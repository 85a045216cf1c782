use burn::tensor::{Device, TensorData};

use super::*;

fn ids<const N: usize, const K: usize>(rows: [[i32; K]; N]) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(rows.as_flattened().to_vec(), [N, K]), &Device::flex())
}

fn rows<const N: usize>(values: [f32; N]) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), [N, 1]), &Device::flex())
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn demand(token_valid: &[bool]) -> Demand {
    Demand::agree(&Group::solo(), token_valid).expect("one rank agrees with itself")
}

#[test]
fn rows_arrive_sorted_by_expert_and_come_back_weighted() {
    let local = Local::new(3);
    let selected = ids([[2, 0], [0, 1]]);
    let sent =
        local.dispatch(rows([10.0, 20.0]), selected, &demand(&[true, true])).expect("dispatch");
    // Expert 0 takes token 0 (slot 1) then token 1 (slot 0); expert 1 token 1; expert 2 token 0.
    assert_eq!(floats(sent.waves[0].rows.clone()), [10.0, 20.0, 20.0, 10.0]);
    let weights =
        Tensor::from_data(TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]), &Device::flex());
    let back =
        local.combine(vec![sent.waves[0].rows.clone()], weights, sent.handle).expect("combine");
    assert_eq!(floats(back.tokens), [30.0, 140.0]);
    assert_eq!((back.report.counts.valid, back.report.counts.kept), (4, 4));
}

#[test]
fn padding_takes_no_row_and_is_counted() {
    let local = Local::new(2);
    let sent = local
        .dispatch(rows([1.0, 2.0]), ids([[0], [-7]]), &demand(&[true, false]))
        .expect("dispatch");
    assert_eq!(sent.waves[0].rows.dims(), [1, 1]);
    let weights = Tensor::ones([2, 1], &Device::flex());
    let back =
        local.combine(vec![sent.waves[0].rows.clone()], weights, sent.handle).expect("combine");
    assert_eq!(floats(back.tokens), [1.0, 0.0]);
    assert_eq!(
        (back.report.counts.assignments, back.report.counts.padding, back.report.counts.kept),
        (2, 1, 1)
    );
}

#[test]
fn a_token_without_an_expert_stops_the_step() {
    let refused =
        Local::new(2).dispatch(rows([1.0]), ids([[-1]]), &demand(&[true])).expect_err("refused");
    assert_eq!(refused, EpError::NotRouted { token: 0, slot: 0 });
    let refused =
        Local::new(2).dispatch(rows([1.0]), ids([[2]]), &demand(&[true])).expect_err("refused");
    assert_eq!(refused.to_string(), "token 0 chose expert 2 in slot 0, needed an id below 2");
    let refused =
        Local::new(2).dispatch(rows([1.0]), ids([[1]]), &demand(&[])).expect_err("refused");
    assert_eq!(refused, EpError::ValidMask { found: 0, tokens: 1 });
}
