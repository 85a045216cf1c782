//! Rows of a device by way of the host: right on every GPU, and what a transport over host memory
//! can do.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{Device, Tensor, TensorData};
use burn_cubecl::CubeBackend;
use fulmar_kernels::bridge::Bridge;

use super::wire::{self, Floats};
use super::{ExchangeKernel, Route};
use crate::transport::Words;

struct HostRows(Vec<f32>);

impl Floats for HostRows {
    fn floats(&self) -> &[f32] {
        &self.0
    }
}

impl Words for HostRows {
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.0)
    }
}

fn fetch(x: FloatTensor<CubeBackend>) -> (HostRows, usize, Device) {
    let x: Tensor<2> = CubeBackend::lift(x);
    let (width, device) = (x.dims()[1], x.device());
    (HostRows(x.into_data().iter::<f32>().collect()), width, device)
}

fn put(values: Vec<f32>, shape: [usize; 2], device: &Device) -> FloatTensor<CubeBackend> {
    CubeBackend::lower(Tensor::<2>::from_data(TensorData::new(values, shape), device))
}

impl ExchangeKernel for CubeBackend {
    fn exchange(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self> {
        let (x, width, device) = fetch(x);
        let rows = route.recv_rows.iter().sum();
        put(wire::all_to_all(x, width, route), [rows, width], &device)
    }

    fn gather(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self> {
        let (x, width, device) = fetch(x);
        let rows = route.recv_rows.iter().sum();
        put(wire::all_gather(x, width, route), [rows, width], &device)
    }

    fn scatter(x: FloatTensor<Self>, route: &Route) -> FloatTensor<Self> {
        let (x, width, device) = fetch(x);
        put(wire::reduce_scatter(x, width, route), [route.recv_rows[0], width], &device)
    }
}
