//! Muon under the hyperball step (`MuonH`).

mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::hyperball;
use crate::newton_schulz::{self, Precision};

/// What counts as one matrix when the hyperball step takes norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuonHNorm {
    /// Each matrix of a stack keeps its own norm.
    PerMatrix,
    /// The stack keeps its norm as a whole, as the live hero run does.
    Joint,
}

/// Settings of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonHOptions {
    /// The step relative to the norm of the weights.
    pub lr: f64,
    /// Decay of the momentum, in [0, 1).
    pub momentum: f64,
    /// Arithmetic of the Newton-Schulz steps.
    pub precision: Precision,
    /// What keeps its norm.
    pub norm: MuonHNorm,
}

/// One step of `MuonH` on a stack of matrices: `(w', momentum')`.
///
/// `m = momentum m + g`, `u = momentum m + g`, `o = NewtonSchulz(u)` per matrix,
/// `w1 = w - lr o |w| / |o|`, `w' = w1 |w| / |w1|`. Muon's factor `sqrt(max(1, out / in))` on `o`
/// is left out: `o / |o|` does not see it. A matrix that is zero, or whose update is, stays as it
/// is; with [`MuonHNorm::Joint`] that holds for the stack.
///
/// Weights and momentum are updated in place where nothing else holds their buffers.
///
/// # Shapes
/// All tensors [n, p, q].
///
/// # Panics
/// If shapes differ.
///
/// # Source
/// SPEC section 4, `MuonH`.
pub fn muonh_step(
    w: Tensor<3>,
    grad: Tensor<3>,
    momentum: Tensor<3>,
    options: &MuonHOptions,
) -> (Tensor<3>, Tensor<3>) {
    let needed = w.dims();
    for (argument, tensor) in [("grad", &grad), ("momentum", &momentum)] {
        let found = tensor.dims();
        assert_eq!(
            found, needed,
            "muonh_step: `{argument}` has shape {found:?}, needed {needed:?} as `w`"
        );
    }
    let [w, grad, momentum] = [w, grad, momentum].map(Tensor::into_dispatch);
    let (w, momentum) = Dispatch::muonh_step(w, grad, momentum, *options);
    (Tensor::from_dispatch(w), Tensor::from_dispatch(momentum))
}

/// The meaning of [`muonh_step`] in plain tensor operations.
pub fn reference(
    w: Tensor<3>,
    grad: Tensor<3>,
    momentum: Tensor<3>,
    options: &MuonHOptions,
) -> (Tensor<3>, Tensor<3>) {
    let momentum = momentum * options.momentum + grad.clone();
    let update = momentum.clone() * options.momentum + grad;
    let update = newton_schulz::reference(update, options.precision);
    let w = hyperball::reference(w, update, options.lr, options.norm == MuonHNorm::Joint);
    (w, momentum)
}

/// The operation as Burn dispatches it; it takes and returns values outside any graph.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait MuonHOps: Backend {
    /// See [`muonh_step`](self::muonh_step()).
    fn muonh_step(
        w: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        momentum: FloatTensor<Self>,
        options: MuonHOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// What a backend computes; the default is the reference.
pub trait MuonHKernel: Bridge {
    /// `(w', momentum')`.
    fn step(
        w: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        momentum: FloatTensor<Self>,
        options: &MuonHOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (w, grad, momentum) = (Self::lift(w), Self::lift(grad), Self::lift(momentum));
        let (w, momentum) = reference(w, grad, momentum, options);
        (Self::lower(w), Self::lower(momentum))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl MuonHOps for $backend {
            fn muonh_step(
                w: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                momentum: FloatTensor<Self>,
                options: MuonHOptions,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                <Self as MuonHKernel>::step(w, grad, momentum, &options)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
