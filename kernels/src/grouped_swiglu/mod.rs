//! `SwiGLU` experts over groups of rows, each group with its own three matrices.

mod autodiff;
mod bf16;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod groups;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::activation::silu;
use burn::tensor::{DType, Device, Tensor};

pub use groups::Groups;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// For the rows of group `i`: `(silu(x w_gate[i]) * (x w_up[i])) w_down[i]`. Rows of no group give
/// zero and pass no gradient; the matrices of an empty group get a gradient of exactly zero.
///
/// Of bf16 tensors the products are those of bf16: operands and results are rounded, sums are f32, and
/// so is what lies between the products. Result and gradients are bf16.
///
/// # Shapes
/// `x` [rows, c], `w_gate` and `w_up` [groups, c, f], `w_down` [groups, f, c], result [rows, c]; all of
/// one type.
///
/// # Panics
/// If `x`, a matrix stack and `groups` disagree.
///
/// # Source
/// SPEC section 2, routed experts.
pub fn grouped_swiglu(
    x: Tensor<2>,
    w_gate: Tensor<3>,
    w_up: Tensor<3>,
    w_down: Tensor<3>,
    groups: &Groups,
) -> Tensor<2> {
    let ([rows, c], [_, _, f]) = (x.dims(), w_gate.dims());
    let (g, needed) = (groups.num_groups(), groups.rows());
    assert_eq!(rows, needed, "grouped_swiglu: `x` has {rows} rows, `groups` needs {needed}");
    for (name, found, needed) in [
        ("w_gate", w_gate.dims(), [g, c, f]),
        ("w_up", w_up.dims(), [g, c, f]),
        ("w_down", w_down.dims(), [g, f, c]),
    ] {
        assert_eq!(found, needed, "grouped_swiglu: `{name}` is {found:?}, needed {needed:?}");
    }
    let needed = x.dtype();
    for (name, found) in
        [("w_gate", w_gate.dtype()), ("w_up", w_up.dtype()), ("w_down", w_down.dtype())]
    {
        assert_eq!(
            found, needed,
            "grouped_swiglu: `{name}` is {found:?}, needed {needed:?} as `x`"
        );
    }
    Tensor::from_dispatch(Dispatch::grouped_swiglu(
        x.into_dispatch(),
        w_gate.into_dispatch(),
        w_up.into_dispatch(),
        w_down.into_dispatch(),
        groups.clone(),
    ))
}

/// The meaning of [`grouped_swiglu`] in plain tensor operations.
pub fn reference(
    x: Tensor<2>,
    w_gate: Tensor<3>,
    w_up: Tensor<3>,
    w_down: Tensor<3>,
    groups: &Groups,
) -> Tensor<2> {
    let ([rows, c], [_, _, f]) = (x.dims(), w_gate.dims());
    let (device, dtype) = (x.device(), x.dtype());
    let zeros = |rows: usize, device: &Device| Tensor::<2>::zeros([rows, c], (device, dtype));
    let wide = |x: Tensor<2>| x.cast(DType::F32);
    let (mut parts, mut next_row) = (vec![], 0);
    for i in groups.in_row_order() {
        let range = groups.range(i);
        parts.push(zeros(range.start - next_row, &device));
        next_row = range.end;
        let x = x.clone().slice([range]);
        let of_group = |w: &Tensor<3>, shape: [usize; 2]| {
            let w: Tensor<3> = w.clone().narrow(0, i, 1);
            w.reshape(shape)
        };
        let gate = silu(wide(x.clone().matmul(of_group(&w_gate, [c, f]))));
        let up = wide(x.matmul(of_group(&w_up, [c, f])));
        parts.push((gate * up).cast(dtype).matmul(of_group(&w_down, [f, c])));
    }
    parts.push(zeros(rows - next_row, &device));
    let out = Tensor::cat(parts, 0);
    if next_row > 0 {
        return out;
    }
    // Without a row in any group, nothing above ties the inputs to the result.
    let tie = x.sum() + w_gate.sum() + w_up.sum() + w_down.sum();
    out + tie.mul_scalar(0.0).reshape([1, 1])
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait GroupedSwigluOps: Backend {
    /// See [`grouped_swiglu`](self::grouped_swiglu()).
    fn grouped_swiglu(
        x: FloatTensor<Self>,
        w_gate: FloatTensor<Self>,
        w_up: FloatTensor<Self>,
        w_down: FloatTensor<Self>,
        groups: Groups,
    ) -> FloatTensor<Self>;
}

/// The four tensor inputs, or their gradients.
#[derive(Debug, Clone)]
pub struct GroupedSwigluInputs<B: Backend> {
    /// The rows [rows, c].
    pub x: FloatTensor<B>,
    /// The gate matrices [groups, c, f].
    pub w_gate: FloatTensor<B>,
    /// The up matrices [groups, c, f].
    pub w_up: FloatTensor<B>,
    /// The down matrices [groups, f, c].
    pub w_down: FloatTensor<B>,
}

/// What a kernel's forward keeps for its backward, beside the inputs; both [rows, f].
#[derive(Debug, Clone)]
pub struct GroupedSwigluSaved<B: Backend> {
    /// The rows times the gate matrices.
    pub gate: FloatTensor<B>,
    /// The rows times the up matrices.
    pub up: FloatTensor<B>,
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait GroupedSwigluKernel: Bridge {
    /// The result.
    fn forward(inputs: GroupedSwigluInputs<Self>, groups: &Groups) -> FloatTensor<Self> {
        let GroupedSwigluInputs { x, w_gate, w_up, w_down } = inputs;
        let (x, w_gate, w_up) = (Self::lift(x), Self::lift(w_gate), Self::lift(w_up));
        Self::lower(reference(x, w_gate, w_up, Self::lift(w_down), groups))
    }

    /// The result and what [`backward`](GroupedSwigluKernel::backward) shall get; the reference
    /// keeps nothing.
    fn forward_saving(
        inputs: GroupedSwigluInputs<Self>,
        groups: &Groups,
    ) -> (FloatTensor<Self>, Option<GroupedSwigluSaved<Self>>) {
        (Self::forward(inputs, groups), None)
    }

    /// The gradients of the inputs for the gradient of the result.
    fn backward(
        inputs: GroupedSwigluInputs<Self>,
        groups: &Groups,
        _saved: Option<GroupedSwigluSaved<Self>>,
        grad: FloatTensor<Self>,
    ) -> GroupedSwigluInputs<Self> {
        let x = leaf::<Self, 2>(inputs.x);
        let w_gate = leaf::<Self, 3>(inputs.w_gate);
        let w_up = leaf::<Self, 3>(inputs.w_up);
        let w_down = leaf::<Self, 3>(inputs.w_down);
        let out = reference(x.clone(), w_gate.clone(), w_up.clone(), w_down.clone(), groups);
        let grads = differentiate::<Self, _>(out, grad);
        GroupedSwigluInputs {
            x: gradient::<Self, 2>(&x, &grads),
            w_gate: gradient::<Self, 3>(&w_gate, &grads),
            w_up: gradient::<Self, 3>(&w_up, &grads),
            w_down: gradient::<Self, 3>(&w_down, &grads),
        }
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl GroupedSwigluOps for $backend {
            fn grouped_swiglu(
                x: FloatTensor<Self>,
                w_gate: FloatTensor<Self>,
                w_up: FloatTensor<Self>,
                w_down: FloatTensor<Self>,
                groups: Groups,
            ) -> FloatTensor<Self> {
                let inputs = GroupedSwigluInputs { x, w_gate, w_up, w_down };
                <Self as GroupedSwigluKernel>::forward(inputs, &groups)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
