use burn::tensor::{Device, Int, Tensor, TensorData};

/// Deterministic inputs on a device; each draw differs from those before it.
///
/// There is no generator to seed: the n-th draw of a check is the same everywhere.
pub(crate) struct Draw {
    device: Device,
    draws: u64,
}

impl Draw {
    pub(crate) fn new(device: &Device) -> Self {
        Self { device: device.clone(), draws: 0 }
    }

    /// Values in [-1, 1), outside any graph.
    pub(crate) fn tensor<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<D> {
        let values = self.values(shape.iter().product());
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A leaf whose gradient is wanted.
    pub(crate) fn leaf<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_inner(self.tensor(shape)).require_grad()
    }

    /// Given integers.
    pub(crate) fn integers<const D: usize>(
        &self,
        values: Vec<i32>,
        shape: [usize; D],
    ) -> Tensor<D, Int> {
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// The gradient of the loss `sum(out * weights)` with drawn weights.
    pub(crate) fn backward<const D: usize>(&mut self, out: &Tensor<D>) -> burn::tensor::Gradients {
        let weights = Tensor::from_inner(self.tensor(out.dims()));
        (out.clone() * weights).sum().backward()
    }

    fn values(&mut self, len: usize) -> Vec<f32> {
        self.draws += 1;
        let salt = self.draws.wrapping_mul(0xD1B5_4A32_D192_ED03);
        (1..=len as u64).map(|i| unit(i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt)).collect()
    }
}

/// A value in [-1, 1) from the upper bits of `z`, mixed (the finaliser of `SplitMix64`).
fn unit(z: u64) -> f32 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
