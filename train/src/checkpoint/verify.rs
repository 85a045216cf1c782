//! Every byte of a checkpoint against its checksums, without a model.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::manifest::{FileEntry, Manifest};
use super::read::{self, Stretch};
use super::{digest, file_name, step_name};
use crate::error::TrainError;
use crate::storage::Storage;

/// Reads all of the checkpoint after `step` updates, several tensors at a time, and returns
/// everything that is wrong; none if it is whole.
///
/// # Errors
/// If there is no manifest that can be used.
pub fn verify(storage: &dyn Storage, step: u64) -> Result<(Manifest, Vec<TrainError>), TrainError> {
    let manifest = Manifest::read(storage, step)?;
    let mut problems: Vec<TrainError> =
        manifest.files.iter().filter_map(|file| size(storage, step, file).err()).collect();
    let digests = digest::of_files(&manifest.files);
    if [&digests.weights, &digests.state] != [&manifest.weights, &manifest.state] {
        let path = storage.locate(&step_name(step)).into();
        let problem = format!("digests {digests:?}, needed those of the manifest");
        problems.push(TrainError::Checkpoint { path, problem });
    }
    let headers: Vec<&String> = manifest.files.keys().collect();
    let wrong = |file: &&String| read::header(storage, &manifest, file).err();
    problems.extend(headers.par_iter().filter_map(wrong).collect::<Vec<_>>());
    let tensors: Vec<Stretch> = manifest
        .files
        .iter()
        .flat_map(|(file, entry)| entry.tensors.iter().map(move |tensor| (file, tensor)))
        .filter_map(|(file, (name, entry))| Stretch::whole(step, file, name, entry))
        .collect();
    let wrong = |tensor: &Stretch| tensor.verify(storage).err();
    problems.extend(tensors.par_iter().filter_map(wrong).collect::<Vec<_>>());
    Ok((manifest, problems))
}

/// Checks that a file has its size, and that header and tensors are all of it.
fn size(
    storage: &dyn Storage,
    step: u64,
    (file, entry): (&String, &FileEntry),
) -> Result<(), TrainError> {
    let name = file_name(step, file);
    let found = storage.size(&name).map_err(TrainError::storage("read", storage, &name))?;
    let mut end = entry.header.bytes;
    let by_place: BTreeMap<u64, u64> =
        entry.tensors.values().map(|tensor| (tensor.bytes.start, tensor.bytes.end)).collect();
    let adjoin =
        by_place.into_iter().all(|(start, next)| start == std::mem::replace(&mut end, next));
    if found == entry.bytes && end == entry.bytes && adjoin {
        return Ok(());
    }
    let problem = format!("{found} bytes, of them {end} in tensors, needed {}", entry.bytes);
    Err(TrainError::Checkpoint { path: storage.locate(&name).into(), problem })
}
