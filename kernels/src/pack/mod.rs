//! Rows into the buffer of an exchange, with ids in front that travel along.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use std::sync::Arc;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};

pub(crate) use check::checks;

use crate::permute::{PermuteKernel, RowIds, RowMap, dispatch_reference};

/// Rows at the front of each part of a packed buffer that hold numbers instead of a token.
#[derive(Debug, Clone)]
pub struct Header {
    /// The number of parts; each has as many rows as any other.
    pub parts: usize,
    /// Header rows of a part.
    pub rows: usize,
    /// [parts, rows, dim]; carried as numbers, outside every graph.
    pub values: Arc<Vec<f32>>,
}

/// Copies rows as [`dispatch_rows`](crate::permute::dispatch_rows()) does, and the header in front
/// of each part. The map's header rows are empty; no gradient passes through the header.
///
/// # Shapes
/// `x` [tokens, dim], result [rows, dim], a whole number of parts.
///
/// # Panics
/// If `x` does not have the map's tokens, the rows are no whole number of parts, a part is shorter
/// than its header, or the header has not its number of values; on a CPU also if the map does not
/// satisfy [`RowMap::validate`] or has a row where the header stands.
///
/// # Source
/// SPEC section 3, fixed pooled-wave.
pub fn pack_rows(x: Tensor<2>, map: &RowMap, header: &Header) -> Tensor<2> {
    let ([found, dim], needed) = (x.dims(), map.tokens());
    assert_eq!(found, needed, "pack_rows: `x` has {found} rows, `map` needs {needed} tokens");
    let Header { parts, rows, values } = header;
    let fits = map.rows().is_multiple_of(*parts) && map.rows() / parts >= *rows;
    assert!(fits, "pack_rows: {} rows are not {parts} parts of at least {rows} rows", map.rows());
    let (found, needed) = (values.len(), parts * rows * dim);
    assert_eq!(found, needed, "pack_rows: `header` has {found} values, needed {needed}");
    let map = map.clone();
    Tensor::from_dispatch(Dispatch::pack_rows(
        x.into_dispatch(),
        map.row_of.into_dispatch(),
        map.assignment_of.into_dispatch(),
        map.checked,
        header.clone(),
    ))
}

/// The meaning of [`pack_rows`](self::pack_rows()) in plain tensor operations.
pub fn reference(x: Tensor<2>, map: &RowMap, header: &Header) -> Tensor<2> {
    let (dim, device) = (x.dims()[1], x.device());
    let rows = dispatch_reference(x, map);
    if header.values.is_empty() {
        return rows;
    }
    let (parts, part_rows) = (header.parts, map.rows() / header.parts);
    let shape = [parts, header.rows, dim];
    let values = Tensor::<3>::from_data(TensorData::new(header.values.to_vec(), shape), &device);
    let rows: Tensor<3> = rows.reshape([parts, part_rows, dim]);
    let packed = rows.slice_assign([0..parts, 0..header.rows, 0..dim], values);
    packed.reshape([parts * part_rows, dim])
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait PackOps: Backend {
    /// See [`pack_rows`](self::pack_rows()).
    fn pack_rows(
        x: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
        header: Header,
    ) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the default is the reference. The backward is that of
/// [`PermuteKernel::dispatch`], since header rows are empty rows of the map.
pub trait PackKernel: PermuteKernel {
    /// The result of [`pack_rows`](self::pack_rows()).
    fn pack(x: FloatTensor<Self>, ids: RowIds<Self>, header: &Header) -> FloatTensor<Self> {
        Self::lower(reference(Self::lift(x), &ids.lift(), header))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl PackOps for $backend {
            fn pack_rows(
                x: FloatTensor<Self>,
                row_of: IntTensor<Self>,
                assignment_of: IntTensor<Self>,
                checked: bool,
                header: Header,
            ) -> FloatTensor<Self> {
                let ids = RowIds { row_of, assignment_of, checked };
                <Self as PackKernel>::pack(x, ids, &header)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
