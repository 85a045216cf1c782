//! A state into files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use fulmar_model::{Role, weights};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::manifest::{FileEntry, Manifest};
use super::slices::slice_name;
use super::{BALANCE, EXPERTS, FORMAT_VERSION, OPTIMIZER, RECIPE, WEIGHTS, step_folder};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::optim::OptimizerTable;
use crate::recipe;
use crate::state::TrainState;

/// Saves the state into its folder under `run`, and returns the folder.
///
/// Files are final when written and the manifest comes last, so an interrupted save leaves a
/// folder that no reader takes for a checkpoint, and nothing is renamed or deleted.
///
/// # Errors
/// [`TrainError::Io`] naming the file that could not be written.
pub fn save(
    run: &Path,
    config: &RunConfig,
    data_digest: &str,
    state: &TrainState,
) -> Result<PathBuf, TrainError> {
    let folder = step_folder(run, state.step);
    std::fs::create_dir_all(&folder).map_err(TrainError::io("create", &folder))?;
    let table = state.optimizer.table();
    let (experts, shared) = split_stacks(table, weights::export(&state.model), |path| path);
    let moments = state.optimizer.export();
    let (mut slices, mut optimizer) = split_stacks(table, moments, parameter_of);
    optimizer.append(&mut slices);

    let mut files = BTreeMap::new();
    for (name, tensors) in
        [(WEIGHTS, shared), (EXPERTS, experts), (OPTIMIZER, optimizer), (BALANCE, balance(state))]
    {
        write_tensors(&folder.join(name), &tensors)?;
        files.insert(name.to_owned(), FileEntry::of(&folder.join(name))?);
    }
    write_file(&folder.join(RECIPE), recipe::to_toml(config).as_bytes())?;
    files.insert(RECIPE.to_owned(), FileEntry::of(&folder.join(RECIPE))?);
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        step: state.step,
        batches: state.batches,
        seed: config.seed,
        recipe: config.digest(),
        optimizer_table: table.digest(),
        data: data_digest.to_owned(),
        files,
    };
    manifest.write(&folder)?;
    Ok(folder)
}

/// The path of the parameter that a moment's name belongs to.
pub(crate) fn parameter_of(moment: &str) -> &str {
    moment.rsplit_once('.').map_or(moment, |(path, _)| path)
}

type Tensors = BTreeMap<String, TensorData>;

/// Expert stacks, renamed as slices, and everything else.
fn split_stacks(
    table: &OptimizerTable,
    tensors: Tensors,
    path_of: fn(&str) -> &str,
) -> (Tensors, Tensors) {
    let mut stacks = Tensors::new();
    let mut others = Tensors::new();
    for (name, data) in tensors {
        let is_stack =
            table.get(path_of(&name)).is_some_and(|entry| entry.role == Role::ExpertStack);
        if is_stack {
            stacks.insert(slice_name(&name, 0..data.shape()[0]), data);
        } else {
            others.insert(name, data);
        }
    }
    (stacks, others)
}

fn balance(state: &TrainState) -> Tensors {
    let layers = state.pending.iter().enumerate();
    layers.map(|(layer, pending)| (layer.to_string(), TensorData::from(&pending[..]))).collect()
}

fn write_tensors(path: &Path, tensors: &Tensors) -> Result<(), TrainError> {
    let views = tensors.iter().map(|(name, data)| {
        let view = TensorView::new(Dtype::F32, data.shape().to_vec(), data.as_bytes());
        (name, view.expect("state is f32"))
    });
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
