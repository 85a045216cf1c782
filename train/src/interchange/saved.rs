//! The weights of a checkpoint, tensor by tensor, without a model: all that exchange and evaluation
//! need of the format of checkpoints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::{ModelConfig, Role};

use super::tensor_file::TensorFile;
use super::{Exchanged, Weights};
use crate::checkpoint::{self, BALANCE, MANIFEST, Manifest, RECIPE, WEIGHTS, slices};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::recipe;
use crate::state;

/// A whole checkpoint that was found and verified.
#[derive(Debug)]
pub struct Saved {
    folder: PathBuf,
    step: u64,
    config: RunConfig,
    pending: Vec<Vec<f32>>,
    shared: TensorFile,
    stacks: Vec<TensorFile>,
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
            let saved = Self::open(place)?;
            return match step {
                Some(step) if step != saved.step => {
                    let problem = format!("is of step {}, needed {step}", saved.step);
                    Err(TrainError::checkpoint(place, problem))
                }
                _ => Ok(saved),
            };
        }
        if let Some(step) = step {
            return Self::open(&checkpoint::step_folder(place, step));
        }
        let found = checkpoint::newest(place)?;
        match found.newest {
            Some((folder, manifest)) => Self::verified(&folder, &manifest),
            None => {
                let reasons = found.rejected.iter().map(|reason| format!("; {reason}"));
                let problem = format!("no whole checkpoint there{}", reasons.collect::<String>());
                Err(TrainError::checkpoint(place, problem))
            }
        }
    }

    fn open(folder: &Path) -> Result<Self, TrainError> {
        let manifest = Manifest::read(folder)?;
        manifest.verify(folder)?;
        Self::verified(folder, &manifest)
    }

    fn verified(folder: &Path, manifest: &Manifest) -> Result<Self, TrainError> {
        let path = folder.join(RECIPE);
        let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        let config: RunConfig = recipe::from_toml(&text, &path.display().to_string())?;
        let stacks = manifest.files.keys().filter(|name| checkpoint::holds_experts(name));
        let stacks = stacks.map(|name| TensorFile::open(&folder.join(name)));
        let balance = TensorFile::open(&folder.join(BALANCE))?;
        Ok(Self {
            folder: folder.to_owned(),
            step: manifest.step,
            pending: pending(&balance, config.model.num_layers)?,
            config,
            shared: TensorFile::open(&folder.join(WEIGHTS))?,
            stacks: stacks.collect::<Result<_, _>>()?,
        })
    }

    /// The checkpoint's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Completed updates.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The recipe.
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
        let data = match parameter.role {
            Role::ExpertStack => self.stack(path, parameter.shape[0])?,
            _ => self.shared.read(path)?,
        };
        let (found, needed) = (data.shape().to_vec(), &parameter.shape);
        if found != *needed {
            let problem = format!("`{path}` has shape {found:?}, needed {needed:?}");
            return Err(TrainError::checkpoint(&self.folder, problem));
        }
        Ok(data)
    }

    fn stack(&self, path: &str, num_experts: usize) -> Result<TensorData, TrainError> {
        let mut found = BTreeMap::new();
        for file in &self.stacks {
            for name in file.names() {
                if let Some((_, range)) = slices::parse(&name).filter(|(of, _)| *of == path) {
                    found.insert(range.start, (range, file.read(&name)?));
                }
            }
        }
        slices::assemble(&found, 0..num_experts)
            .map_err(|problem| TrainError::checkpoint(&self.folder, format!("`{path}`: {problem}")))
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
fn pending(balance: &TensorFile, num_layers: usize) -> Result<Vec<Vec<f32>>, TrainError> {
    if balance.names().is_empty() {
        return Ok(Vec::new());
    }
    let layer = |layer: usize| Ok(balance.read(&layer.to_string())?.iter::<f32>().collect());
    (0..num_layers).map(layer).collect()
}
