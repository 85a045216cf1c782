//! Golden optimizer cases as tensors.

use burn::tensor::{Tensor, TensorData};
use fulmar_tests::golden::{GoldenFile, cases};

use crate::compare::device;

/// One file of golden values.
pub(crate) struct Case(GoldenFile);

impl Case {
    /// A setting of the file's own metadata.
    pub(crate) fn setting(&self, name: &str) -> f64 {
        self.0.setting(name)
    }

    /// A tensor by name, reshaped to `D` dimensions by leading ones.
    pub(crate) fn tensor<const D: usize>(&self, name: &str) -> Tensor<D> {
        let mut shape = [1; D];
        let found = self.0.shape(name);
        shape[D - found.len()..].copy_from_slice(found);
        Tensor::from_data(TensorData::new(self.0.floats(name).to_vec(), shape), &device())
    }
}

/// Every optimizer case of the golden folder.
pub(crate) fn optimizer_cases() -> Vec<Case> {
    cases("optimizer").iter().map(|path| Case(GoldenFile::read(path))).collect()
}
