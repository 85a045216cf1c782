//! Files back into a state.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, TensorData};
use fulmar_model::{Role, weights};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::manifest::Manifest;
use super::{BALANCE, OPTIMIZER, RECIPE, WEIGHTS, folder, holds_experts, slices};
use crate::checkpoint::save::parameter_of;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::recipe;
use crate::state::TrainState;

/// The newest whole checkpoint of a run, and why newer ones were passed over.
#[derive(Debug)]
pub struct Found {
    /// Folder and manifest of the checkpoint, if there is a whole one.
    pub newest: Option<(PathBuf, Manifest)>,
    /// One reason for each newer folder, newest first.
    pub rejected: Vec<TrainError>,
}

/// Looks for the newest whole checkpoint under `run`; every file's checksum is verified.
///
/// # Errors
/// If the folder of checkpoints exists and cannot be listed.
pub fn newest(run: &Path) -> Result<Found, TrainError> {
    let parent = folder(run);
    let mut found = Found { newest: None, rejected: Vec::new() };
    if !parent.exists() {
        return Ok(found);
    }
    let list = || -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(&parent)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut candidates = list().map_err(TrainError::io("list", &parent))?;
    candidates.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-"))
    });
    candidates.sort();
    for path in candidates.into_iter().rev() {
        let whole =
            Manifest::read(&path).and_then(|manifest| manifest.verify(&path).map(|()| manifest));
        match whole {
            Ok(manifest) => {
                found.newest = Some((path, manifest));
                break;
            }
            Err(reason) => found.rejected.push(reason),
        }
    }
    Ok(found)
}

/// A checkpoint, and the experts that are wanted from it.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The checkpoint's folder.
    pub path: &'a Path,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// Global ids of the experts of this rank's shard, however they are spread over files.
    pub experts: Range<usize>,
}

/// Replaces everything in `state` by what a checkpoint holds, parameter by parameter.
///
/// # Errors
/// If the checkpoint is of another recipe, seed, data or optimizer table; then the state is as it
/// was. If it lacks a tensor; then the state has no weights any more.
pub fn restore(
    from: &Source<'_>,
    config: &RunConfig,
    data_digest: &str,
    device: &Device,
    state: &mut TrainState,
) -> Result<(), TrainError> {
    let Source { path, manifest, experts } = from;
    same_run(path, config)?;
    let differs = |what: &str, found: &str, needed: &str| {
        TrainError::checkpoint(path, format!("{what} {found}, needed {needed}"))
    };
    if manifest.data != data_digest {
        return Err(differs("was trained on data", &manifest.data, data_digest));
    }
    let table = state.optimizer.table().clone();
    if manifest.optimizer_table != table.digest() {
        return Err(differs("optimizer table", &manifest.optimizer_table, &table.digest()));
    }
    let weights_file = TensorFile::open(path, WEIGHTS)?;
    let moments = TensorFile::open(path, OPTIMIZER)?;
    let balance = TensorFile::open(path, BALANCE)?;
    let stacks = ExpertFiles::open(path, manifest)?;

    let is_stack =
        |parameter: &str| table.get(parameter).is_some_and(|entry| entry.role == Role::ExpertStack);
    let mut problem = None;
    let mut read = |file: &TensorFile, name: &str, parameter: &str| {
        if !is_stack(parameter) {
            return file.tensor(name);
        }
        let stack = stacks.stack(name, experts.clone());
        stack.map_err(|error| problem.get_or_insert(error).to_string()).ok()
    };
    // Given away, so that each old weight is freed when the new one is there.
    let husk = weights::emptied(&state.model);
    let model = weights::import(std::mem::replace(&mut state.model, husk), |path| {
        read(&weights_file, path, path).filter(|data| data.dtype() == DType::F32)
    });
    let imported = state.optimizer.import(manifest.step, &device.clone().inner(), |name| {
        read(&moments, name, parameter_of(name))
    });
    if let Some(problem) = problem {
        return Err(problem);
    }
    let missing = |error: &dyn std::fmt::Display| TrainError::checkpoint(path, error.to_string());
    state.model = model.map_err(|error| missing(&error))?;
    imported.map_err(|error| missing(&error))?;
    state.pending = balance.pending(config)?;
    state.step = manifest.step;
    state.batches = manifest.batches;
    Ok(())
}

/// Fails with the first field in which the checkpoint's recipe differs where it must not.
fn same_run(path: &Path, config: &RunConfig) -> Result<(), TrainError> {
    let file = path.join(RECIPE);
    let text = std::fs::read_to_string(&file).map_err(TrainError::io("read", &file))?;
    let saved: RunConfig = recipe::from_toml(&text, &file.display().to_string())?;
    let value = |config: &RunConfig| {
        let mut value = serde_json::to_value(config).expect("a config of plain values");
        if let Some(fields) = value.as_object_mut() {
            // Where a run leaves its traces and how often may change between attempts. Files may
            // move: what is in them is compared by the store's digest.
            // Ranks and exchanges are no part of the state.
            for free in ["name", "parallel", "evaluation", "checkpoint", "log", "guard"] {
                fields.remove(free);
            }
            let mixture = serde_json::json!({
                "block_rows": config.data.block_rows,
                "stages": config.data.stages,
            });
            fields.insert("data".to_owned(), mixture);
        }
        value
    };
    match first_difference("", &value(&saved), &value(config)) {
        None => Ok(()),
        Some((field, found, needed)) => {
            let problem = format!("field `{field}` is {found} there and {needed} in this run");
            Err(TrainError::checkpoint(path, problem))
        }
    }
}

fn first_difference(
    path: &str,
    left: &serde_json::Value,
    right: &serde_json::Value,
) -> Option<(String, String, String)> {
    if let (Some(a), Some(b)) = (left.as_object(), right.as_object()) {
        let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        let null = serde_json::Value::Null;
        return keys.into_iter().find_map(|key| {
            let path = fulmar_model::role::join(path, key);
            first_difference(&path, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null))
        });
    }
    (left != right).then(|| (path.to_owned(), left.to_string(), right.to_string()))
}

/// A mapped safetensors file.
struct TensorFile {
    path: PathBuf,
    map: Mmap,
}

impl TensorFile {
    fn open(folder: &Path, name: &str) -> Result<Self, TrainError> {
        let path = folder.join(name);
        let file = std::fs::File::open(&path).map_err(TrainError::io("open", &path))?;
        // SAFETY: nothing writes to a checkpoint once its manifest stands, and the manifest was
        // read and verified before; a file cut short by others ends the process, not our memory.
        let map = unsafe { Mmap::map(&file) }.map_err(TrainError::io("map", &path))?;
        let file = Self { path, map };
        file.tensors()?;
        Ok(file)
    }

    fn tensors(&self) -> Result<SafeTensors<'_>, TrainError> {
        SafeTensors::deserialize(&self.map)
            .map_err(|error| TrainError::checkpoint(&self.path, error.to_string()))
    }

    /// A tensor of one of the types that a checkpoint holds.
    fn tensor(&self, name: &str) -> Option<TensorData> {
        let tensors = self.tensors().ok()?;
        let view = tensors.tensor(name).ok()?;
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::BF16,
            _ => return None,
        };
        Some(TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype))
    }

    fn pending(&self, config: &RunConfig) -> Result<Vec<Vec<f32>>, TrainError> {
        if self.tensors()?.is_empty() {
            return Ok(Vec::new());
        }
        let layer = |layer: usize| {
            let data = self.tensor(&layer.to_string());
            let is_balance = |data: &TensorData| {
                data.dtype() == DType::F32 && data.num_elements() == config.model.num_experts
            };
            let data = data.filter(is_balance);
            let problem =
                || TrainError::checkpoint(&self.path, format!("no balance of layer {layer}"));
            Ok(data.ok_or_else(problem)?.iter::<f32>().collect())
        };
        (0..config.model.num_layers).map(layer).collect()
    }
}

/// The files of all shards.
struct ExpertFiles {
    folder: PathBuf,
    files: Vec<TensorFile>,
}

impl ExpertFiles {
    fn open(folder: &Path, manifest: &Manifest) -> Result<Self, TrainError> {
        let names = manifest.files.keys().filter(|name| holds_experts(name));
        let files = names.map(|name| TensorFile::open(folder, name));
        Ok(Self { folder: folder.to_owned(), files: files.collect::<Result<_, _>>()? })
    }

    /// The experts `wanted` of a stack, from whichever files hold them; no other slice is read.
    fn stack(&self, stack: &str, wanted: Range<usize>) -> Result<TensorData, TrainError> {
        let mut found = BTreeMap::new();
        for file in &self.files {
            for name in file.tensors()?.names() {
                let Some((of, range)) = slices::parse(name) else { continue };
                let overlaps = range.start < wanted.end && wanted.start < range.end;
                if of == stack
                    && overlaps
                    && let Some(data) = file.tensor(name)
                {
                    found.insert(range.start, (range, data));
                }
            }
        }
        slices::assemble(&found, wanted).map_err(|problem| {
            TrainError::checkpoint(&self.folder, format!("`{stack}`: {problem}"))
        })
    }
}
