use burn::tensor::{Device, Tensor, TensorData};

use super::{reference, soft_cap};

fn tensor(rows: usize, dim: usize, step: f32) -> Tensor<2> {
    let values = (0..rows * dim).map(|i| (i as f32 * step).sin() * 6.0).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(values, [rows, dim]), &Device::flex())
}

/// Result and gradient.
fn run(op: fn(Tensor<2>, f64) -> Tensor<2>, x: Tensor<2>) -> [Vec<f32>; 2] {
    let x = Tensor::from_inner(x).require_grad();
    let y = op(x.clone(), 2.5);
    let weights = Tensor::from_inner(tensor(y.dims()[0], y.dims()[1], 0.7));
    let grads = (y.clone() * weights).sum().backward();
    [y.inner(), x.grad(&grads).expect("a gradient")]
        .map(|found| found.into_data().try_to_vec().expect("f32"))
}

#[test]
fn soft_cap_matches_its_reference_in_values_and_gradients() {
    // A transposed view is read as its values.
    for x in [tensor(1, 1, 1.0), tensor(7, 13, 0.3), tensor(129, 300, 0.01).swap_dims(0, 1)] {
        let (found, expected) = (run(soft_cap, x.clone()), run(reference, x));
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() <= 1e-5, "found {found}, expected {expected}");
        }
    }
}

#[test]
fn soft_cap_stays_within_the_cap() {
    let [y, _] = run(soft_cap, tensor(3, 5, 1.0) * 1e6);
    assert!(y.iter().all(|y| y.abs() <= 2.5), "{y:?}");
}

#[test]
#[should_panic(expected = "soft_cap: `cap` is 0, needed above 0 and finite")]
fn soft_cap_needs_a_cap() {
    soft_cap(tensor(1, 2, 1.0), 0.0);
}
