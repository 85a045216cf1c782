use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType};

use super::wire::{self, Floats};
use super::{ExchangeKernel, Route};
use crate::transport::Words;

/// A contiguous tensor, read by peers where it lies.
struct HostRows(FlexTensor);

impl HostRows {
    fn new(x: &FlexTensor) -> (Self, usize) {
        let x = x.to_contiguous();
        assert_eq!(x.dtype(), DType::F32, "the CPU exchanges f32 rows");
        let width = x.layout().shape()[1];
        (Self(x), width)
    }
}

impl Floats for HostRows {
    fn floats(&self) -> &[f32] {
        self.0.as_slice().expect("contiguous f32")
    }
}

impl Words for HostRows {
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(self.floats())
    }
}

fn rows(values: Vec<f32>, width: usize, rows: usize) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous([rows, width].into()), DType::F32)
}

impl ExchangeKernel for Flex {
    fn exchange(x: FlexTensor, route: &Route) -> FlexTensor {
        let (x, width) = HostRows::new(&x);
        rows(wire::all_to_all(x, width, route), width, route.recv_rows.iter().sum())
    }

    fn gather(x: FlexTensor, route: &Route) -> FlexTensor {
        let (x, width) = HostRows::new(&x);
        rows(wire::all_gather(x, width, route), width, route.recv_rows.iter().sum())
    }

    fn scatter(x: FlexTensor, route: &Route) -> FlexTensor {
        let (x, width) = HostRows::new(&x);
        rows(wire::reduce_scatter(x, width, route), width, route.recv_rows[0])
    }
}
