//! Ids beyond their bound, which a device's kernels read as -1: nothing is read or written outside.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_kernels::combine_weights::{self, combine_weights};
use fulmar_kernels::cross_entropy::{
    TokenLosses, cross_entropy, token_losses, token_losses_reference,
};
use fulmar_kernels::pack::{self, Header, pack_rows};
use fulmar_kernels::permute::{
    RowMap, combine_parts, combine_reference, dispatch_reference, dispatch_rows,
};
use fulmar_kernels::routing_statistics::{self, block_statistics};
use fulmar_kernels::sequence_balance::{self, sequence_balance};

use super::{device, leaf, tensor, values};

const FAR: i32 = i32::MAX;
const NEAR: i32 = -2;

fn ids<const D: usize>(ids: &[i32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), shape), device)
}

/// Three tokens of two slots and five rows; ids just and far outside on both sides.
fn map(device: &Device) -> RowMap {
    let row_of = ids(&[2, 5, 0, FAR, NEAR, i32::MIN], [3, 2], device);
    RowMap::new(row_of, ids(&[2, 6, 0, FAR, NEAR], [5], device))
}

/// The result of `run` and the gradients of what it read, on the device and by a reference.
fn assert_agree(run: impl Fn(&Device, bool) -> Vec<Vec<f32>>) {
    let (found, expected) = (run(&device(), true), run(&Device::flex(), false));
    assert_eq!(found.len(), expected.len());
    for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "result {which}");
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-5, "{which}[{i}]: {found}, not {expected}");
        }
    }
}

#[test]
fn rows_of_bad_assignments_are_empty_and_bad_rows_are_dropped() {
    assert_agree(|device, is_kernel| {
        let (x, map) = (leaf([3, 4], 0.1, device), map(device));
        let y = if is_kernel { dispatch_rows } else { dispatch_reference }(x.clone(), &map);
        // Only rows that a token's slots name have a gradient on both sides of a one-way map.
        let rows = Tensor::cat(vec![y.clone().narrow(0, 0, 1), y.clone().narrow(0, 2, 1)], 0);
        let grads = rows.sum().backward();
        vec![values(y), values(x.grad(&grads).expect("dx"))]
    });
    assert_agree(|device, is_kernel| {
        let parts: Vec<_> = [[2, 4], [3, 4]].map(|shape| leaf(shape, 0.2, device)).into();
        let (weights, map) = (leaf([3, 2], 0.3, device), map(device));
        let op = if is_kernel { combine_parts } else { combine_reference };
        let sum = op(parts.clone(), weights.clone(), &map);
        let grads = sum.clone().sum().backward();
        let of = |leaf: &Tensor<2>| values(leaf.grad(&grads).expect("a gradient"));
        vec![values(sum), of(&weights), of(&parts[0]), of(&parts[1])]
    });
}

#[test]
fn packed_rows_of_bad_assignments_are_empty_and_headers_stand() {
    assert_agree(|device, is_kernel| {
        let row_of = ids(&[1, 4, 3, FAR], [2, 2], device);
        // The first row of each of the two parts holds a header, whatever the map says.
        let map = RowMap::new(row_of, ids(&[3, 0, FAR, 2], [4], device));
        let header = Header { parts: 2, rows: 1, values: vec![7.0; 6].into() };
        let x = leaf([2, 3], 0.1, device);
        vec![values(if is_kernel { pack_rows } else { pack::reference }(x, &map, &header))]
    });
}

#[test]
fn experts_that_do_not_exist_have_no_weight_and_no_load() {
    assert_agree(|device, is_kernel| {
        let logits = leaf([2, 5], 0.1, device);
        let selected = ids(&[4, 5, FAR, NEAR, 1, i32::MIN], [2, 3], device);
        let op = if is_kernel { combine_weights } else { combine_weights::reference };
        let weights = op(logits.clone(), selected, 2.5);
        let squares = weights.clone() * weights.clone();
        let grads = squares.sum().backward();
        vec![values(weights), values(logits.grad(&grads).expect("dlogits"))]
    });
    assert_agree(|device, is_kernel| {
        let logits = leaf([2, 5], 0.1, device);
        let selected = ids(&[4, 5, FAR, NEAR, 1, i32::MIN], [2, 3], device);
        let op = if is_kernel { sequence_balance } else { sequence_balance::reference };
        let loss = op(logits.clone(), selected, ids(&[1, -3], [2], device), 2);
        let grads = loss.clone().sum().backward();
        vec![values(loss), values(logits.grad(&grads).expect("dlogits"))]
    });
}

#[test]
fn a_target_beyond_the_vocabulary_makes_loss_and_gradients_nan() {
    for bad in [3, FAR, -1, i32::MIN] {
        let (hidden, head) = (leaf([2, 4], 0.1, &device()), leaf([4, 3], 0.2, &device()));
        let (targets, weight) = (ids(&[1, bad], [2], &device()), tensor([2], 0.3, &device()) + 2.0);
        let losses = cross_entropy(hidden.clone(), head.clone(), targets, weight, 1e-2);
        let grads = losses.total.backward();
        assert!(values(losses.total)[0].is_nan());
        assert!(values(losses.cross_entropy_sum)[0].is_nan());
        let dhead = values(head.grad(&grads).expect("dhead"));
        assert!(dhead.iter().all(|value| value.is_nan()));
        let dhidden = values(hidden.grad(&grads).expect("dhidden"));
        assert!(dhidden[..4].iter().all(|value| value.is_finite()));
        assert!(dhidden[4..].iter().all(|value| value.is_nan()));
    }
}

#[test]
fn a_target_beyond_the_vocabulary_does_nothing_without_weight_and_touches_no_other_token() {
    assert_agree(|device, _| {
        let (hidden, head) = (leaf([2, 4], 0.1, device), leaf([4, 3], 0.2, device));
        let weight = Tensor::from_data(TensorData::from([0.0f32, 0.5]), device);
        let losses =
            cross_entropy(hidden.clone(), head.clone(), ids(&[FAR, 2], [2], device), weight, 1e-2);
        let grads = losses.total.backward();
        let of = |leaf: &Tensor<2>| values(leaf.grad(&grads).expect("a gradient"));
        vec![values(losses.total), values(losses.z_sum), of(&hidden), of(&head)]
    });
    assert_agree(|device, is_kernel| {
        let (hidden, head) = (tensor([2, 4], 0.1, device), tensor([4, 3], 0.2, device));
        let (op, bad) =
            if is_kernel { (token_losses as Op, 3) } else { (token_losses_reference as Op, 0) };
        let losses = op(hidden, head, ids(&[bad, 2], [2], device));
        let nll = values(losses.nll);
        assert_eq!(nll[0].is_nan(), is_kernel);
        vec![nll[1..].into(), values(losses.log_sum_exp)]
    });
}

type Op = fn(Tensor<2>, Tensor<2>, Tensor<1, Int>) -> TokenLosses;

#[test]
fn experts_that_do_not_exist_are_not_counted() {
    assert_agree(|device, is_kernel| {
        let logits = leaf([2, 5], 0.1, device);
        let selected = ids(&[4, 5, FAR, NEAR, 1, i32::MIN], [2, 3], device);
        let op = if is_kernel { block_statistics } else { routing_statistics::reference };
        let found = op(logits, selected, tensor([2], 0.2, device), ids(&[1, -3], [2], device));
        let read = found.read();
        assert_eq!((read.tokens, &read.expert_counts), (2, &vec![0, 1, 0, 0, 1]));
        vec![read.probability_sums.iter().map(|sum| *sum as f32).collect()]
    });
}
