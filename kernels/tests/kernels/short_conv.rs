use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::short_conv::{reference, short_conv};

use crate::compare::{assert_close, assert_repeats, bits, device, leaf, tensor, values};

type Op = fn(Tensor<3>, Tensor<2>, Tensor<2, Int>) -> Tensor<3>;

/// Documents whose lengths cycle through `lengths`; the first id comes back later, so that equal
/// ids need not be neighbours.
fn segments([b, s]: [usize; 2], lengths: &[usize]) -> Tensor<2, Int> {
    let mut ids = Vec::new();
    let mut document = 0;
    while ids.len() < b * s {
        ids.extend(vec![document % 3; lengths[document as usize % lengths.len()]]);
        document += 1;
    }
    ids.truncate(b * s);
    Tensor::from_data(TensorData::new(ids, [b, s]), &device())
}

fn run(op: Op, [b, s, d]: [usize; 3], taps: usize) -> (Tensor<3>, Tensor<3>, Tensor<2>) {
    let (x, weight) = (leaf([b, s, d], 1), leaf([taps, d], 2));
    let ids = segments([b, s], &[5, 1, 9, 2]);
    let out = op(x.clone(), weight.clone(), Tensor::from_inner(ids));
    let grads = (out.clone() * Tensor::from_inner(tensor([b, s, d], 3))).sum().backward();
    (out.inner(), x.grad(&grads).expect("dx"), weight.grad(&grads).expect("dweight"))
}

#[test]
fn short_conv_matches_its_reference_in_values_and_gradients() {
    for (shape, taps) in
        [([1, 1, 1], 4), ([2, 3, 5], 4), ([3, 67, 33], 4), ([2, 130, 8], 1), ([1, 64, 7], 9)]
    {
        let (out, dx, dweight) = run(short_conv, shape, taps);
        let (out_ref, dx_ref, dweight_ref) = run(reference, shape, taps);
        assert_close("out", out, out_ref, 1e-6);
        assert_close("dx", dx, dx_ref, 1e-5);
        assert_close("dweight", dweight, dweight_ref, 1e-5);
    }
}

#[test]
fn short_conv_reads_views_in_their_own_order() {
    let (x, weight) = (tensor::<3>([9, 2, 6], 1), tensor::<2>([6, 4], 2));
    let (x, weight) = (x.swap_dims(0, 1), weight.swap_dims(0, 1));
    let ids = segments([9, 2], &[4, 3]).swap_dims(0, 1);
    let expected = reference(x.clone(), weight.clone(), ids.clone());
    assert_close("out", short_conv(x, weight, ids), expected, 1e-6);
}

#[test]
fn short_conv_of_hand_made_values() {
    let row = |values: &[f32]| Tensor::<1>::from_floats(values, &device());
    let x = row(&[1.0, 2.0, 3.0, 4.0]).reshape([1, 4, 1]);
    let weight = row(&[1.0, 10.0, 100.0]).reshape([3, 1]);
    let ids = Tensor::<1, Int>::from_ints([0, 0, 0, 1], &device()).reshape([1, 4]);
    // 1, 2 + 10*1, 3 + 10*2 + 100*1, and a new document: 4.
    let expected = row(&[1.0, 12.0, 123.0, 4.0]).reshape([1, 4, 1]);
    assert_close("out", short_conv(x, weight, ids), expected, 0.0);
}

#[test]
fn short_conv_has_the_same_bits_for_any_number_of_threads() {
    assert_repeats(|| {
        let (out, dx, dweight) = run(short_conv, [3, 200, 9], 4);
        (bits(out), bits(dx), bits(dweight))
    });
}

#[test]
fn short_conv_of_a_document_ignores_its_neighbours() {
    let (s, d) = (40, 5);
    let ids = segments([1, s], &[13, 11, 100]);
    let mut inputs = values(s * d, 1);
    let run = |x: &[f32]| {
        let x = Tensor::<3>::from_data(TensorData::new(x.to_vec(), [1, s, d]), &device());
        bits(short_conv(x, tensor([4, d], 2), ids.clone()))
    };
    let before = run(&inputs);
    inputs[13 * d..24 * d].fill(7.0);
    let after = run(&inputs);
    assert_eq!(before[..13 * d], after[..13 * d]);
    assert_ne!(before[13 * d..24 * d], after[13 * d..24 * d]);
    assert_eq!(before[24 * d..], after[24 * d..]);
}
