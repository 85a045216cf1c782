use burn::tensor::Tensor;
use fulmar_kernels::gated::{Activation, gated, head_gate, reference, sigmoid_gate, swiglu};

use crate::compare::{assert_close, assert_gradient, assert_repeats, bits, leaf, tensor};

const ACTIVATIONS: [Activation; 3] =
    [Activation::Silu, Activation::Sigmoid, Activation::TwiceSigmoid];

type Op = fn(Tensor<2>, Tensor<2>, Activation) -> Tensor<2>;

/// The result and the gradients of value and gate; `flip` feeds transposed views.
fn run(op: Op, shape: [usize; 2], gate: usize, act: Activation, flip: bool) -> [Tensor<2>; 3] {
    let [rows, dim] = shape;
    let place = |shape: [usize; 2]| if flip { [shape[1], shape[0]] } else { shape };
    let view = |x: &Tensor<2>| if flip { x.clone().swap_dims(0, 1) } else { x.clone() };
    let (value, gate) = (leaf(place([rows, dim]), 1), leaf(place([rows, gate]), 2));
    let out = op(view(&value), view(&gate).mul_scalar(6.0), act);
    let upstream = Tensor::from_inner(view(&tensor(place([rows, dim]), 3)));
    let grads = (out.clone() * upstream).sum().backward();
    [out.inner(), value.grad(&grads).expect("dvalue"), gate.grad(&grads).expect("dgate")]
}

#[test]
fn gated_matches_its_reference_in_values_and_gradients() {
    for activation in ACTIVATIONS {
        for (rows, dim) in [(1, 1), (1, 5), (3, 7), (65, 96), (300, 67)] {
            for (gate, flip) in [(dim, false), (dim, true), (1, false), (1, true)] {
                let found = run(gated, [rows, dim], gate, activation, flip);
                let expected = run(reference, [rows, dim], gate, activation, flip);
                for (found, expected) in found.into_iter().zip(expected) {
                    let name = format!("{activation:?} [{rows}, {dim}] by {gate}");
                    assert_close(&name, found, expected, 2e-6);
                }
            }
        }
    }
}

#[test]
fn gated_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    for gate in [67, 1] {
        assert_repeats(|| run(gated, [300, 67], gate, Activation::Silu, false).map(bits));
    }
}

#[test]
fn its_gradients_are_finite_differences() {
    for activation in ACTIVATIONS {
        let (value, gate) = (leaf::<2>([3, 4], 1), leaf::<2>([3, 4], 2));
        let grads = gated(value.clone(), gate.clone(), activation).sum().backward();
        let dgate = gate.grad(&grads).expect("dgate");
        let loss = |gate| gated(value.clone().inner(), gate, activation).sum();
        assert_gradient("dgate", loss, gate.inner(), dgate, 1e-3);
    }
}

#[test]
fn a_gradient_that_another_branch_shares_is_not_overwritten() {
    let branches = |op: Op, act: Activation| {
        let (a, b) = (leaf::<2>([3, 4], 1), leaf::<2>([3, 4], 2));
        let sum = op(a.clone(), b.clone(), act) + op(b.clone(), a.clone(), act);
        let grads = (sum * Tensor::from_inner(tensor([3, 4], 3))).sum().backward();
        [a.grad(&grads).expect("da"), b.grad(&grads).expect("db")]
    };
    let expected = branches(reference, Activation::Silu);
    for (found, expected) in branches(gated, Activation::Silu).into_iter().zip(expected) {
        assert_close("shared", found, expected, 1e-6);
    }
}

#[test]
fn the_three_gates_are_their_formulas() {
    let (a, b) = (tensor::<2>([3, 8], 1), tensor::<2>([3, 8], 2));
    let silu = a.clone() * burn::tensor::activation::sigmoid(a.clone());
    assert_close("swiglu", swiglu(a.clone(), b.clone()), silu * b.clone(), 1e-6);
    let expected = a.clone() * burn::tensor::activation::sigmoid(b.clone());
    assert_close("sigmoid_gate", sigmoid_gate(a, b), expected, 1e-6);
    let (y, z) = (tensor::<3>([5, 3, 4], 1), tensor::<2>([5, 3], 2));
    let gate = burn::tensor::activation::sigmoid(z.clone()).mul_scalar(2.0);
    let expected = y.clone() * gate.unsqueeze_dim(2);
    assert_close("head_gate", head_gate(y.clone(), z), expected, 1e-6);
    assert_close("open", head_gate(y.clone(), Tensor::zeros([5, 3], &y.device())), y, 0.0);
}

#[test]
fn gated_of_no_rows_is_empty() {
    let [out, dvalue, dgate] = run(gated, [0, 5], 5, Activation::Sigmoid, false);
    assert_eq!((out.dims(), dvalue.dims(), dgate.dims()), ([0, 5], [0, 5], [0, 5]));
}

#[test]
#[should_panic(expected = "swiglu: `gate` has shape [2, 3], needed [2, 4] as `up`")]
fn swiglu_refuses_shapes_that_differ() {
    swiglu(tensor([2, 3], 1), tensor([2, 4], 2));
}

#[test]
#[should_panic(expected = "head_gate: `z` has shape [2, 4], needed [2, 3] as `y`")]
fn head_gate_refuses_a_gate_of_other_heads() {
    head_gate(tensor([2, 3, 5], 1), tensor([2, 4], 2));
}
