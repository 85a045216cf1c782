//! Rows between ranks as tensor operations, under autodiff: the backward of an exchange is the
//! reverse exchange.
//!
//! Each operation is a collective. Every rank of the group must reach it, forward and backward, in
//! the same order, with zero rows too; and its output must reach the loss, or its backward is
//! skipped here and waited for elsewhere. Ranks share no thread pool: inside a task of a shared one a
//! collective would hold a worker that its peers need.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod label;
mod wire;

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use fulmar_kernels::bridge::Bridge;
use serde::{Deserialize, Serialize};

pub use label::Label;

use crate::report::WireCounter;
use crate::transport::Group;

/// The type of rows on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// Rows travel as they are.
    #[default]
    F32,
    /// Rows are rounded to bfloat16 for the way, in both directions: half the bytes.
    Bf16,
}

impl Payload {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Where the rows of an exchange go.
#[derive(Debug, Clone)]
pub struct Route {
    /// The ranks that exchange.
    pub group: Group,
    /// What for, in errors and between peers.
    pub label: Label,
    /// The type of rows on the wire.
    pub payload: Payload,
    /// Rows for each member, in the order of the input's rows.
    pub send_rows: Vec<usize>,
    /// Rows from each member, in the order of the output's rows.
    pub recv_rows: Vec<usize>,
    /// How many rows of each part are header.
    pub header_rows: usize,
    /// Counts what leaves this rank.
    pub wire: Arc<WireCounter>,
}

impl Route {
    /// The way back.
    #[must_use]
    pub fn reversed(self, label: Label) -> Self {
        Self { label, send_rows: self.recv_rows, recv_rows: self.send_rows, ..self }
    }

    /// The way that gradients take.
    #[must_use]
    pub(crate) fn backward(&self) -> Self {
        let Label { forward, backward } = self.label;
        self.clone().reversed(Label { forward: backward, backward: forward })
    }

    fn count_sent(&self, width: usize) {
        let row_bytes = (width * self.payload.bytes()) as u64;
        for (member, rows) in self.send_rows.iter().enumerate() {
            if member != self.group.rank() {
                let header = self.header_rows.min(*rows);
                self.wire.add_header(header as u64 * row_bytes);
                self.wire.add_payload((rows - header) as u64 * row_bytes);
            }
        }
    }
}

/// Sends rows to every member and returns those that came: `[for 0 | for 1 | ..]` to
/// `[from 0 | from 1 | ..]`.
///
/// # Shapes
/// `x` [sum of `send_rows`, width], result [sum of `recv_rows`, width].
///
/// # Panics
/// If `x` does not have the route's rows. Unwinds with a [`TransportError`](crate::transport::TransportError) if a
/// peer is lost.
pub fn exchange(x: Tensor<2>, route: &Route) -> Tensor<2> {
    let (found, needed) = (x.dims()[0], route.send_rows.iter().sum::<usize>());
    assert_eq!(
        found, needed,
        "exchange `{}`: `x` has {found} rows, needed {needed}",
        route.label.forward
    );
    Tensor::from_dispatch(Dispatch::exchange_rows(x.into_dispatch(), route.clone()))
}

/// The rows of every member, by member. The backward is [`reduce_scatter`].
///
/// # Shapes
/// `x` [rows of this member, width] where `route.recv_rows` are the rows of each member and
/// `route.send_rows` those of this one, once for each member; result [sum of `recv_rows`, width].
///
/// # Panics
/// As [`exchange`].
pub fn all_gather(x: Tensor<2>, route: &Route) -> Tensor<2> {
    let (found, needed) = (x.dims()[0], route.recv_rows[route.group.rank()]);
    assert_eq!(
        found, needed,
        "all_gather `{}`: `x` has {found} rows, needed {needed}",
        route.label.forward
    );
    Tensor::from_dispatch(Dispatch::gather_rows(x.into_dispatch(), route.clone()))
}

/// The sum over members, in their order, of their rows for this one. The backward is
/// [`all_gather`].
///
/// # Shapes
/// `x` [sum of `send_rows`, width], where `route.send_rows` are the rows of each member and
/// `route.recv_rows` those of this one, once for each member; result [rows of this member, width].
///
/// # Panics
/// As [`exchange`].
pub fn reduce_scatter(x: Tensor<2>, route: &Route) -> Tensor<2> {
    let (found, needed) = (x.dims()[0], route.send_rows.iter().sum::<usize>());
    assert_eq!(
        found, needed,
        "reduce_scatter `{}`: `x` has {found} rows, needed {needed}",
        route.label.forward
    );
    Tensor::from_dispatch(Dispatch::scatter_rows(x.into_dispatch(), route.clone()))
}

/// The operations as Burn dispatches them.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait ExchangeOps: Backend {
    /// See [`exchange`].
    fn exchange_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self>;

    /// See [`all_gather`].
    fn gather_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self>;

    /// See [`reduce_scatter`].
    fn scatter_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self>;
}

/// What a backend without autodiff does.
pub trait ExchangeKernel: Bridge {
    /// See [`exchange`].
    fn exchange(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self>;

    /// See [`all_gather`].
    fn gather(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self>;

    /// See [`reduce_scatter`].
    fn scatter(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self>;
}

macro_rules! ops {
    ($backend:ty) => {
        impl ExchangeOps for $backend {
            fn exchange_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
                <Self as ExchangeKernel>::exchange(x, &route)
            }

            fn gather_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
                <Self as ExchangeKernel>::gather(x, &route)
            }

            fn scatter_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
                <Self as ExchangeKernel>::scatter(x, &route)
            }
        }
    };
}

ops!(Flex);
#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
