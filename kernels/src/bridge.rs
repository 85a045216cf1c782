//! Between a backend's own tensor primitives and the public [`Tensor`].
//!
//! A kernel trait is generic over a backend and sees primitives; a reference body is written once
//! in plain tensor operations. [`Bridge`] carries values across, so that the reference can be the
//! default body of every kernel trait.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, BackendTensor, DispatchTensor, DispatchTensorKind, Flex};
use burn::tensor::{Int, Tensor};

/// A backend whose primitives can be lifted to [`Tensor`] and lowered again, without a copy.
///
/// Lifted tensors are outside every autodiff graph.
pub trait Bridge: Backend {
    /// A float primitive as a tensor of rank `D`.
    fn lift<const D: usize>(primitive: FloatTensor<Self>) -> Tensor<D>;
    /// A float tensor as a primitive; panics if the tensor lives on another backend.
    fn lower<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self>;
    /// An integer primitive as a tensor of rank `D`.
    fn lift_int<const D: usize>(primitive: IntTensor<Self>) -> Tensor<D, Int>;
    /// An integer tensor as a primitive; panics if the tensor lives on another backend.
    fn lower_int<const D: usize>(tensor: Tensor<D, Int>) -> IntTensor<Self>;
}

macro_rules! bridge {
    ($backend:ty, $variant:ident) => {
        impl Bridge for $backend {
            fn lift<const D: usize>(primitive: FloatTensor<Self>) -> Tensor<D> {
                Tensor::from_dispatch(DispatchTensor {
                    kind: DispatchTensorKind::$variant(BackendTensor::Float(primitive)),
                    autodiff: Default::default(),
                })
            }

            fn lower<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self> {
                match tensor.into_dispatch().kind {
                    DispatchTensorKind::$variant(tensor) => tensor.float(),
                    #[allow(unreachable_patterns, reason = "depends on the enabled backends")]
                    _ => panic!("a float tensor of another backend reached a kernel"),
                }
            }

            fn lift_int<const D: usize>(primitive: IntTensor<Self>) -> Tensor<D, Int> {
                Tensor::from_dispatch(DispatchTensor {
                    kind: DispatchTensorKind::$variant(BackendTensor::Int(primitive)),
                    autodiff: Default::default(),
                })
            }

            fn lower_int<const D: usize>(tensor: Tensor<D, Int>) -> IntTensor<Self> {
                match tensor.into_dispatch().kind {
                    DispatchTensorKind::$variant(tensor) => tensor.int(),
                    #[allow(unreachable_patterns, reason = "depends on the enabled backends")]
                    _ => panic!("an integer tensor of another backend reached a kernel"),
                }
            }
        }
    };
}

bridge!(Flex, Flex);
#[cfg(feature = "cube")]
bridge!(burn_cubecl::CubeBackend, Cube);
