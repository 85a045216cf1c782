//! Rows between token order and expert order: out by [`dispatch_rows`], back and summed by
//! [`combine_rows`]. Each is the other's backward.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod ids;
mod map;
mod parts;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

pub(crate) use check::{checks, map as check_map};
pub(crate) use ids::HostIds;
pub use map::RowMap;
use parts::MOST_PARTS;
pub use parts::Parts;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// Copies each token's row to the rows of its assignments: row `r` is `x[assignment_of[r] / k]`,
/// zero where the row is empty. The gradient of a token is the sum over its slots, in slot order.
///
/// # Shapes
/// `x` [tokens, dim], result [rows, dim].
///
/// # Panics
/// If `x` does not have the map's number of tokens; on a CPU also if the map does not satisfy
/// [`RowMap::validate`]. Other backends read an id beyond its bound as an empty row or slot.
///
/// # Source
/// SPEC section 2, routed experts, and section 3.
pub fn dispatch_rows(x: Tensor<2>, map: &RowMap) -> Tensor<2> {
    let (found, needed) = (x.dims()[0], map.tokens());
    assert_eq!(found, needed, "dispatch_rows: `x` has {found} rows, `map` needs {needed} tokens");
    let map = map.clone();
    Tensor::from_dispatch(Dispatch::dispatch_rows(
        x.into_dispatch(),
        map.row_of.into_dispatch(),
        map.assignment_of.into_dispatch(),
        map.checked,
    ))
}

/// Sums each token's rows with its weights: `sum over j of weights[t, j] * y[row_of[t, j]]`, in
/// slot order and f32; a dropped slot adds nothing to the result and gets no gradient.
///
/// # Shapes
/// `y` [rows, dim], `weights` [tokens, k], result [tokens, dim].
///
/// # Panics
/// If `y` or `weights` does not fit the map; on a CPU also if the map does not satisfy
/// [`RowMap::validate`]. Other backends read an id beyond its bound as an empty row or slot.
///
/// # Source
/// SPEC section 2, routed experts, and section 3.
pub fn combine_rows(y: Tensor<2>, weights: Tensor<2>, map: &RowMap) -> Tensor<2> {
    combine_parts(vec![y], weights, map)
}

/// [`combine_rows`](self::combine_rows()) of rows that lie in several tensors: those of the second
/// follow those of the first, and so on. The sum of a token is in slot order, whichever tensors its
/// rows are in.
///
/// # Shapes
/// `parts` [rows of the part, dim] each, at least one; `weights` [tokens, k], result [tokens, dim].
///
/// # Panics
/// As [`combine_rows`](self::combine_rows()).
pub fn combine_parts(parts: Vec<Tensor<2>>, weights: Tensor<2>, map: &RowMap) -> Tensor<2> {
    let (found, needed) = (parts.iter().map(|part| part.dims()[0]).sum::<usize>(), map.rows());
    assert_eq!(found, needed, "combine_rows: `y` has {found} rows, `map` needs {needed}");
    let (found, needed) = (weights.dims(), map.row_of.dims());
    assert_eq!(found, needed, "combine_rows: `weights` is {found:?}, `map` needs {needed:?}");
    // A node of the graph has a fixed number of parents.
    let parts = if parts.len() > MOST_PARTS { vec![joined(parts)] } else { parts };
    let map = map.clone();
    Tensor::from_dispatch(Dispatch::combine_rows(
        Parts::new(parts.into_iter().map(Tensor::into_dispatch).collect()),
        weights.into_dispatch(),
        map.row_of.into_dispatch(),
        map.assignment_of.into_dispatch(),
        map.checked,
    ))
}

/// The meaning of [`dispatch_rows`] in plain tensor operations.
pub fn dispatch_reference(x: Tensor<2>, map: &RowMap) -> Tensor<2> {
    let k = map.slots();
    let empty = (map.tokens() * k) as i32;
    let assignment = or_padding(map.assignment_of.clone(), empty);
    padded(vec![x]).select(0, assignment.div_scalar(k.max(1) as i32))
}

/// The meaning of [`combine_parts`] in plain tensor operations.
pub fn combine_reference(parts: Vec<Tensor<2>>, weights: Tensor<2>, map: &RowMap) -> Tensor<2> {
    let ([tokens, k], dim) = (weights.dims(), parts[0].dims()[1]);
    let row = or_padding(map.row_of.clone().reshape([tokens * k]), map.rows() as i32);
    let dropped = row.clone().equal_elem(map.rows() as i32).reshape([tokens * k, 1]);
    // Zero times a weight that is not finite would be NaN.
    let weights = weights.reshape([tokens * k, 1]).mask_fill(dropped, 0.0);
    let terms = padded(parts).select(0, row) * weights;
    terms.reshape([tokens, k, dim]).sum_dim(1).reshape([tokens, dim])
}

/// The rows of all parts and a row of zeros, which dropped slots and empty rows read.
fn padded(mut parts: Vec<Tensor<2>>) -> Tensor<2> {
    parts.push(Tensor::zeros([1, parts[0].dims()[1]], &parts[0].device()));
    joined(parts)
}

/// The rows of all parts. `cat` would leave empty ones out of the graph; here their sums, 0, keep
/// them in.
fn joined(parts: Vec<Tensor<2>>) -> Tensor<2> {
    let (empty, mut filled): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.dims()[0] == 0);
    let Some(last) = filled.pop() else {
        return empty.into_iter().reduce(|sum, part| sum + part).expect("at least one part");
    };
    let zeros = empty.into_iter().map(|part| part.sum().reshape([1, 1]));
    filled.push(zeros.fold(last, |last, zero| last + zero));
    Tensor::cat(filled, 0)
}

/// Indices with everything outside `0..padding` set to `padding`.
fn or_padding(index: Tensor<1, Int>, padding: i32) -> Tensor<1, Int> {
    let none = index.clone().lower_elem(0);
    index.clamp_max(padding).mask_fill(none, padding)
}

/// The operations as Burn dispatches them.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait PermuteOps: Backend {
    /// See [`dispatch_rows`](self::dispatch_rows()).
    fn dispatch_rows(
        x: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
    ) -> FloatTensor<Self>;

    /// See [`combine_parts`].
    fn combine_rows(
        #[extension_type] parts: Parts<Self>,
        weights: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
    ) -> FloatTensor<Self>;
}

/// A [`RowMap`] as a backend's primitives.
#[derive(Debug, Clone)]
pub struct RowIds<B: Backend> {
    /// The row of each assignment.
    pub row_of: IntTensor<B>,
    /// The assignment of each row.
    pub assignment_of: IntTensor<B>,
    /// Whether the two directions are known to agree.
    pub(crate) checked: bool,
}

impl<B: Bridge> RowIds<B> {
    pub(crate) fn lift(self) -> RowMap {
        RowMap {
            row_of: B::lift_int(self.row_of),
            assignment_of: B::lift_int(self.assignment_of),
            checked: self.checked,
        }
    }
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait PermuteKernel: Bridge {
    /// The result of [`dispatch_rows`](self::dispatch_rows()).
    fn dispatch(x: FloatTensor<Self>, ids: RowIds<Self>) -> FloatTensor<Self> {
        Self::lower(dispatch_reference(Self::lift(x), &ids.lift()))
    }

    /// The gradient of `x`: the rows summed per token with weight 1.
    fn dispatch_backward(ids: RowIds<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        let (map, grad) = (ids.lift(), Self::lift::<2>(grad));
        let ones = Tensor::ones(map.row_of.dims(), &grad.device());
        Self::lower(combine_reference(vec![grad], ones, &map))
    }

    /// The result of [`combine_parts`].
    fn combine(
        parts: Vec<FloatTensor<Self>>,
        weights: FloatTensor<Self>,
        ids: RowIds<Self>,
    ) -> FloatTensor<Self> {
        let parts = parts.into_iter().map(Self::lift).collect();
        Self::lower(combine_reference(parts, Self::lift(weights), &ids.lift()))
    }

    /// The gradients of the parts and of `weights` for the gradient of the result.
    fn combine_backward(
        parts: Vec<FloatTensor<Self>>,
        weights: FloatTensor<Self>,
        ids: RowIds<Self>,
        grad: FloatTensor<Self>,
    ) -> (Vec<FloatTensor<Self>>, FloatTensor<Self>) {
        let parts: Vec<Tensor<2>> = parts.into_iter().map(leaf::<Self, 2>).collect();
        let weights = leaf::<Self, 2>(weights);
        let out = combine_reference(parts.clone(), weights.clone(), &ids.lift());
        let grads = differentiate::<Self, _>(out, grad);
        let of = |leaf: &Tensor<2>| gradient::<Self, 2>(leaf, &grads);
        (parts.iter().map(of).collect(), of(&weights))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl PermuteOps for $backend {
            fn dispatch_rows(
                x: FloatTensor<Self>,
                row_of: IntTensor<Self>,
                assignment_of: IntTensor<Self>,
                checked: bool,
            ) -> FloatTensor<Self> {
                let ids = RowIds { row_of, assignment_of, checked };
                <Self as PermuteKernel>::dispatch(x, ids)
            }

            fn combine_rows(
                parts: Parts<Self>,
                weights: FloatTensor<Self>,
                row_of: IntTensor<Self>,
                assignment_of: IntTensor<Self>,
                checked: bool,
            ) -> FloatTensor<Self> {
                let ids = RowIds { row_of, assignment_of, checked };
                <Self as PermuteKernel>::combine(parts.into_vec(), weights, ids)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
