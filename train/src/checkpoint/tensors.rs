//! The tensors of a checkpoint one by one, without a model.

use std::sync::Arc;

use burn::tensor::{DType, TensorData};
use safetensors::Dtype;

use super::manifest::{Manifest, TensorEntry};
use super::read::{self, Index};
use super::{RECIPE, file_name, step_name};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::recipe;
use crate::storage::Storage;

/// A checkpoint whose tensors are verified as they are read.
#[derive(Debug, Clone)]
pub struct Tensors {
    storage: Arc<dyn Storage>,
    manifest: Manifest,
}

impl Tensors {
    /// The tensors of the checkpoint of `manifest` in `storage`.
    pub fn new(storage: Arc<dyn Storage>, manifest: Manifest) -> Self {
        Self { storage, manifest }
    }

    /// What the checkpoint consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Path or address of the checkpoint's folder.
    pub fn place(&self) -> String {
        self.storage.locate(&step_name(self.manifest.step))
    }

    /// The recipe in force when it was saved.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was saved.
    pub fn recipe(&self) -> Result<RunConfig, TrainError> {
        let bytes = read::header(&*self.storage, &self.manifest, RECIPE)?;
        let place = self.storage.locate(&file_name(self.manifest.step, RECIPE));
        recipe::from_toml(&String::from_utf8_lossy(&bytes), &place)
    }

    /// A tensor by its global name, a stack with all its experts; none if there is no such tensor.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was saved.
    pub fn read(&self, name: &str) -> Result<Option<TensorData>, TrainError> {
        let index = Index::new(&self.manifest);
        let Some((first, num_units)) = index.of(name) else { return Ok(None) };
        let stretches = index.stretches(name, None);
        let total: u64 = stretches.iter().map(read::Stretch::num_bytes).sum();
        let mut bytes = Vec::with_capacity(total as usize);
        read::read(&*self.storage, &stretches, |_, piece| {
            bytes.extend_from_slice(&piece);
            Ok(())
        })?;
        let mut shape = first.shape.clone();
        if let Some(experts) = num_units {
            shape[0] = experts;
        }
        Ok(Some(TensorData::from_bytes_vec(bytes, shape, self.dtype(name, first)?)))
    }

    fn dtype(&self, name: &str, entry: &TensorEntry) -> Result<DType, TrainError> {
        match entry.dtype {
            Dtype::F32 => Ok(DType::F32),
            Dtype::BF16 => Ok(DType::BF16),
            other => {
                let problem = format!("`{name}` is {other:?}, needed F32 or BF16");
                Err(TrainError::Checkpoint { path: self.place().into(), problem })
            }
        }
    }
}
