//! The weights of a checkpoint, tensor by tensor, without a model: all that exchange and evaluation
//! need of the format of checkpoints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::TensorData;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::{ModelConfig, Role};

use super::{Exchanged, Weights};
use crate::checkpoint::{self, MANIFEST, Manifest, Tensors, census};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::state;
use crate::storage::{LocalStorage, Storage, storage_of_run};

/// A checkpoint that was found; its tensors are verified as they are read.
#[derive(Debug)]
pub struct Saved {
    tensors: Tensors,
    config: RunConfig,
    pending: Vec<Vec<f32>>,
}

impl Saved {
    /// The checkpoint in a folder of its own, or of a run: the one after `step` updates, or the
    /// newest whole one.
    ///
    /// # Errors
    /// If there is none, or it is damaged; with reasons.
    pub fn find(run_or_checkpoint: &Path, step: Option<u64>) -> Result<Self, TrainError> {
        let place = run_or_checkpoint;
        if place.join(MANIFEST).exists() {
            return Self::alone(place, step);
        }
        let storage = storage_of_run(place)?.0;
        if let Some(step) = step {
            let manifest = Manifest::read(&*storage, step)?;
            return Self::open(storage, manifest);
        }
        let found = checkpoint::newest(&*storage, None)?;
        match found.newest {
            Some(manifest) => Self::open(storage, manifest),
            None => {
                let reasons = found.rejected.iter().map(|reason| format!("; {reason}"));
                let problem = format!("no whole checkpoint there{}", reasons.collect::<String>());
                Err(TrainError::checkpoint(place, problem))
            }
        }
    }

    /// The checkpoint of a folder of its own, by the step in its name.
    fn alone(folder: &Path, wanted: Option<u64>) -> Result<Self, TrainError> {
        let named = folder.file_name().and_then(|name| name.to_str()?.strip_prefix("step-"));
        let step = named.and_then(|step| step.parse().ok());
        let Some(step) = step else {
            let problem = "needed a folder named by its step, such as step-00000040";
            return Err(TrainError::checkpoint(folder, problem));
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != step) {
            let problem = format!("is of step {step}, needed {wanted}");
            return Err(TrainError::checkpoint(folder, problem));
        }
        let root = folder.parent().unwrap_or(folder);
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(root));
        let manifest = Manifest::read(&*storage, step)?;
        Self::open(storage, manifest)
    }

    fn open(storage: Arc<dyn Storage>, manifest: Manifest) -> Result<Self, TrainError> {
        let tensors = Tensors::new(storage, manifest);
        let recipe = tensors.recipe()?;
        let open = recipe.open_stages(tensors.manifest().batches);
        let config = recipe.with_open_stages(open);
        let pending = pending(&tensors, config.model.num_layers)?;
        Ok(Self { tensors, config, pending })
    }

    /// Path or address of the checkpoint's folder.
    pub fn folder(&self) -> PathBuf {
        self.tensors.place().into()
    }

    /// Completed updates.
    pub fn step(&self) -> u64 {
        self.tensors.manifest().step
    }

    /// The recipe, in rows of the context stage that is open and with its `qk_mult`.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The bias that the pending balance of a layer stands for; none before the first step.
    fn pending_bias(&self, layer: usize) -> Option<TensorData> {
        let pending = self.pending.get(layer)?;
        Some(TensorData::from(&state::balancing(&self.config).bias(pending)[..]))
    }

    fn stored(&self, parameter: &Exchanged) -> Result<TensorData, TrainError> {
        let path = &parameter.path;
        let problem = |problem: String| TrainError::checkpoint(&self.folder(), problem);
        let data = self.tensors.read(path)?;
        let data = data.ok_or_else(|| problem(format!("`{path}` is missing")))?;
        let (found, needed) = (data.shape().to_vec(), &parameter.shape);
        if found != *needed {
            return Err(problem(format!("`{path}` has shape {found:?}, needed {needed:?}")));
        }
        Ok(data)
    }
}

impl Weights for Saved {
    fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    /// As evaluation and export see it: with the pending balance as router bias (SPEC section 2).
    fn read(&self, parameter: &Exchanged) -> Result<TensorData, TrainError> {
        let pending = match (parameter.role, parameter.layer) {
            (Role::RouterBias, Some(layer)) => self.pending_bias(layer),
            _ => None,
        };
        pending.map_or_else(|| self.stored(parameter), Ok)
    }
}

/// One tensor a layer, or none before the first step.
fn pending(tensors: &Tensors, num_layers: usize) -> Result<Vec<Vec<f32>>, TrainError> {
    let layer = |layer: usize| {
        let data = tensors.read(&census::balance_name(layer))?;
        Ok(data.map(|data| data.iter::<f32>().collect()))
    };
    let layers = (0..num_layers).map(layer).collect::<Result<Vec<_>, TrainError>>()?;
    Ok(layers.into_iter().flatten().collect())
}
