//! Products with an activated gate: `SwiGLU`, the gate of a gated norm, the gate of a head.
//!
//! All three are `value * activation(gate)`, so they share one operation, [`gated`].

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use burn::tensor::activation;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// What is done to a gate before it is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `g sigmoid(g)`.
    Silu,
    /// `sigmoid(g)`.
    Sigmoid,
    /// `2 sigmoid(g)`, which is 1 at a gate of 0.
    TwiceSigmoid,
}

/// `silu(gate) * up`, the inside of an expert.
///
/// # Shapes
/// `gate` and `up` [rows, expert inner], result the same.
///
/// # Panics
/// If the shapes differ.
///
/// # Source
/// SPEC section 2, routed experts, item 5.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    let (found, needed) = (gate.dims(), up.dims());
    assert!(found == needed, "swiglu: `gate` has shape {found:?}, needed {needed:?} as `up`");
    gated(up, gate, Activation::Silu)
}

/// `x * sigmoid(z)`, the end of a gated norm.
///
/// # Shapes
/// `x` and `z` [rows, dim], result the same.
///
/// # Panics
/// If the shapes differ.
///
/// # Source
/// SPEC section 2, `GatedNorm`.
pub fn sigmoid_gate(x: Tensor<2>, z: Tensor<2>) -> Tensor<2> {
    let (found, needed) = (z.dims(), x.dims());
    assert!(found == needed, "sigmoid_gate: `z` has shape {found:?}, needed {needed:?} as `x`");
    gated(x, z, Activation::Sigmoid)
}

/// `y * 2 sigmoid(z)`, one gate for all of a head.
///
/// # Shapes
/// `y` [tokens, heads, head dim], `z` [tokens, heads], result as `y`.
///
/// # Panics
/// If the tokens or heads differ.
///
/// # Source
/// SPEC section 2, attention, item 7.
pub fn head_gate(y: Tensor<3>, z: Tensor<2>) -> Tensor<3> {
    let ([t, h, a], found) = (y.dims(), z.dims());
    assert!(found == [t, h], "head_gate: `z` has shape {found:?}, needed {:?} as `y`", [t, h]);
    gated(y.reshape([t * h, a]), z.reshape([t * h, 1]), Activation::TwiceSigmoid).reshape([t, h, a])
}

/// `value * activation(gate)`; a gate of one column serves its whole row.
///
/// # Shapes
/// `value` [rows, dim], `gate` [rows, dim] or [rows, 1], result as `value`.
///
/// # Panics
/// If `gate` has neither shape.
///
/// # Source
/// SPEC section 2.
pub fn gated(value: Tensor<2>, gate: Tensor<2>, activation: Activation) -> Tensor<2> {
    let ([rows, dim], found) = (value.dims(), gate.dims());
    assert!(
        found == [rows, dim] || found == [rows, 1],
        "gated: `gate` has shape {found:?}, needed [{rows}, {dim}] or [{rows}, 1]"
    );
    Tensor::from_dispatch(Dispatch::gated(value.into_dispatch(), gate.into_dispatch(), activation))
}

/// The meaning of [`gated`] in plain tensor operations.
pub fn reference(value: Tensor<2>, gate: Tensor<2>, activation: Activation) -> Tensor<2> {
    value
        * match activation {
            Activation::Silu => activation::silu(gate),
            Activation::Sigmoid => activation::sigmoid(gate),
            Activation::TwiceSigmoid => activation::sigmoid(gate).mul_scalar(2.0),
        }
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait GatedOps: Backend {
    /// See [`gated`](self::gated()).
    fn gated(
        value: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait GatedKernel: Bridge {
    /// The result.
    fn forward(
        value: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(value), Self::lift(gate), activation))
    }

    /// The gradients of `value` and `gate` for the gradient of the result.
    fn backward(
        value: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        activation: Activation,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (value, gate) = (leaf::<Self, 2>(value), leaf::<Self, 2>(gate));
        let out = reference(value.clone(), gate.clone(), activation);
        let grads = differentiate::<Self, _>(out, grad);
        (gradient::<Self, 2>(&value, &grads), gradient::<Self, 2>(&gate, &grads))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl GatedOps for $backend {
            fn gated(
                value: FloatTensor<Self>,
                gate: FloatTensor<Self>,
                activation: Activation,
            ) -> FloatTensor<Self> {
                <Self as GatedKernel>::forward(value, gate, activation)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
