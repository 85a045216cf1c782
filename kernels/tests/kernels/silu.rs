use burn::tensor::Tensor;
use fulmar_kernels::silu::{reference, silu};

use crate::compare::{assert_close, assert_gradient, assert_repeats, bits, leaf, tensor};

fn run(op: fn(Tensor<2>) -> Tensor<2>, rows: usize, dim: usize, flip: bool) -> [Tensor<2>; 2] {
    let view = |x: Tensor<2>| if flip { x.swap_dims(0, 1) } else { x };
    let x = leaf(if flip { [dim, rows] } else { [rows, dim] }, 1);
    let out = op(view(x.clone()).mul_scalar(6.0));
    let grads = (out.clone() * Tensor::from_inner(tensor([rows, dim], 3))).sum().backward();
    [out.inner(), x.grad(&grads).expect("dx")]
}

#[test]
fn silu_matches_its_reference_in_values_and_gradients() {
    for (rows, dim) in [(0, 3), (1, 1), (3, 7), (65, 96), (300, 67)] {
        for flip in [false, true] {
            let expected = run(reference, rows, dim, flip);
            for (found, expected) in run(silu, rows, dim, flip).into_iter().zip(expected) {
                assert_close(&format!("silu [{rows}, {dim}]"), found, expected, 2e-6);
            }
        }
    }
}

#[test]
fn silu_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    assert_repeats(|| run(silu, 300, 67, false).map(bits));
}

#[test]
fn its_gradient_is_the_finite_difference() {
    let x = leaf::<2>([3, 4], 1);
    let gradient = x.grad(&silu(x.clone()).sum().backward()).expect("dx");
    assert_gradient("dx", |x| silu(x).sum(), x.inner(), gradient, 1e-3);
}
