//! A state into files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor, TensorData};
use fulmar_ep::World;
use fulmar_model::weights::Held;
use fulmar_model::{Role, weights};
use safetensors::{Dtype, View};

use super::manifest::{FileEntry, Manifest};
use super::slices::slice_name;
use super::{BALANCE, FORMAT_VERSION, OPTIMIZER, RECIPE, WEIGHTS, experts_file, step_folder};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::optim::OptimizerTable;
use crate::recipe;
use crate::state::TrainState;

/// What a checkpoint says of the run it belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The run's folder.
    pub folder: &'a Path,
    /// Its recipe.
    pub config: &'a RunConfig,
    /// Digest of the training store and its tokenizer.
    pub data: &'a str,
}

/// Saves the state into its folder under the run's, and returns the folder. Every rank calls it: the
/// first writes what is shared, each shard of the first replica its experts.
///
/// Files are final when written and the manifest comes last, so an interrupted save leaves a
/// folder that no reader takes for a checkpoint, and nothing is renamed or deleted.
///
/// # Errors
/// [`TrainError::Io`] naming the file that could not be written, or if a peer is lost.
pub fn save(run: &Run<'_>, state: &TrainState, world: &World) -> Result<PathBuf, TrainError> {
    let folder = step_folder(run.folder, state.step);
    std::fs::create_dir_all(&folder).map_err(TrainError::io("create", &folder))?;
    let own = if world.replica_index() == 0 {
        write_own(&folder, run, state, world)?
    } else {
        Files::new()
    };
    let own = serde_json::to_vec(&own).expect("entries are plain values");
    let mut files = Files::new();
    for of_rank in world.all.gather_bytes("files of a checkpoint", &own)? {
        files.append(&mut serde_json::from_slice(&of_rank).expect("entries of a peer"));
    }
    if world.is_first() {
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            step: state.step,
            batches: state.batches,
            seed: run.config.seed,
            recipe: run.config.digest(),
            optimizer_table: state.optimizer.table().digest(),
            data: run.data.to_owned(),
            files,
        };
        manifest.write(&folder)?;
    }
    world.all.barrier("checkpoint")?;
    Ok(folder)
}

type Files = BTreeMap<String, FileEntry>;

/// Writes the files of a rank of the first replica.
fn write_own(
    folder: &Path,
    run: &Run<'_>,
    state: &TrainState,
    world: &World,
) -> Result<Files, TrainError> {
    let first_expert = world.experts(run.config.model.num_experts).start;
    let table = state.optimizer.table();
    let stacks = Stacks { table, first_expert };
    let (mut experts, shared) = stacks.split(weights::hold(&state.model), |path| path);
    let (mut of_experts, moments) = stacks.split(state.optimizer.hold(), parameter_of);
    experts.append(&mut of_experts);

    let mut files = Files::new();
    let mut write = |name: &str, tensors: &Tensors| -> Result<(), TrainError> {
        write_tensors(&folder.join(name), tensors)?;
        files.insert(name.to_owned(), FileEntry::of(&folder.join(name))?);
        Ok(())
    };
    write(&experts_file(world.shard(), world.layout.shards), &experts)?;
    if world.is_first() {
        write(WEIGHTS, &shared)?;
        write(OPTIMIZER, &moments)?;
        write(BALANCE, &balance(state))?;
        let recipe = folder.join(RECIPE);
        write_file(&recipe, recipe::to_toml(run.config).as_bytes())?;
        files.insert(RECIPE.to_owned(), FileEntry::of(&recipe)?);
    }
    Ok(files)
}

/// The path of the parameter that a moment's name belongs to.
pub(crate) fn parameter_of(moment: &str) -> &str {
    moment.rsplit_once('.').map_or(moment, |(path, _)| path)
}

/// Tensors of a file by name; each is copied while it is written, no two at a time.
type Tensors = BTreeMap<String, Held>;

/// How expert stacks of a shard are told from other tensors.
struct Stacks<'a> {
    table: &'a OptimizerTable,
    first_expert: usize,
}

impl Stacks<'_> {
    /// Expert stacks, renamed as slices, and everything else.
    fn split(&self, tensors: Tensors, path_of: fn(&str) -> &str) -> (Tensors, Tensors) {
        let mut stacks = Tensors::new();
        let mut others = Tensors::new();
        for (name, data) in tensors {
            let entry = self.table.get(path_of(&name));
            if entry.is_some_and(|entry| entry.role == Role::ExpertStack) {
                let experts = self.first_expert..self.first_expert + data.shape()[0];
                stacks.insert(slice_name(&name, experts), data);
            } else {
                others.insert(name, data);
            }
        }
        (stacks, others)
    }
}

fn balance(state: &TrainState) -> Tensors {
    let layers = state.pending.iter().enumerate();
    let held = |pending: &[f32]| {
        let values = Tensor::from_data(TensorData::from(pending), &Device::flex());
        Held::new(vec![pending.len()], values)
    };
    layers.map(|(layer, pending)| (layer.to_string(), held(pending))).collect()
}

/// A tensor as a file's writer sees it.
struct InFile<'a>(&'a Held);

impl View for InFile<'_> {
    fn dtype(&self) -> Dtype {
        match self.0.dtype() {
            DType::F32 => Dtype::F32,
            DType::BF16 => Dtype::BF16,
            other => panic!("state is F32 or BF16, found {other:?}"),
        }
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.read().as_bytes().to_vec())
    }

    fn data_len(&self) -> usize {
        self.0.num_bytes()
    }
}

fn write_tensors(path: &Path, tensors: &Tensors) -> Result<(), TrainError> {
    let views = tensors.iter().map(|(name, held)| (name, InFile(held)));
    let failed = |error: safetensors::SafeTensorError| {
        TrainError::io("write", path)(std::io::Error::other(error.to_string()))
    };
    safetensors::serialize_to_file(views, None, path).map_err(failed)?;
    File::open(path).and_then(|file| file.sync_all()).map_err(TrainError::io("sync", path))
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(TrainError::io("write", path))
}
