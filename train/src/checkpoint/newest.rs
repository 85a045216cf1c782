//! Which checkpoints a storage holds, and which of them may be whole.

use super::folders::{StepFolder, step_folders};
use super::manifest::{Manifest, Unusable};
use crate::error::TrainError;
use crate::storage::Storage;

/// A folder of a step.
#[derive(Debug)]
pub struct Candidate {
    /// The step.
    pub step: u64,
    /// Its manifest, if all its files have their sizes, or why not.
    pub manifest: Result<(Manifest, String), Unusable>,
    /// Bytes of all that lies in the folder.
    pub bytes: u64,
}

/// The newest checkpoint that may be whole, and why newer ones were passed over.
#[derive(Debug, Default)]
pub struct Found {
    /// The checkpoint's manifest, if there is one.
    pub newest: Option<Manifest>,
    /// Its text.
    pub(crate) text: String,
    /// One reason for each newer folder, newest first.
    pub rejected: Vec<TrainError>,
    /// Whether one of those was whole once.
    pub damaged: bool,
}

/// The folders of all steps, newest first; each is looked into when it is asked for. Manifests and
/// sizes are read, checksums are not.
///
/// # Errors
/// If the storage cannot be listed.
pub fn candidates(
    storage: &dyn Storage,
) -> Result<impl Iterator<Item = Candidate> + '_, TrainError> {
    let folders = step_folders(storage).map_err(TrainError::storage("list", storage, ""))?;
    Ok(folders.into_iter().rev().map(move |folder| look_into(storage, &folder)))
}

fn look_into(storage: &dyn Storage, folder: &StepFolder) -> Candidate {
    let sizes = folder.objects.iter().filter_map(|object| {
        let (_, file) = object.name.split_once('/')?;
        Some((file, object.bytes))
    });
    let sizes = sizes.collect();
    let manifest = Manifest::read_text(storage, folder.step).and_then(|(manifest, text)| {
        manifest.check_sizes(storage, &sizes).map_err(Unusable::Damaged)?;
        Ok((manifest, text))
    });
    Candidate { step: folder.step, manifest, bytes: folder.bytes() }
}

/// Looks for the newest checkpoint whose manifest and sizes are whole, of steps below `before` if
/// that is given.
///
/// # Errors
/// If the storage cannot be listed.
pub fn newest(storage: &dyn Storage, before: Option<u64>) -> Result<Found, TrainError> {
    let mut found = Found::default();
    let older = |candidate: &Candidate| before.is_none_or(|before| candidate.step < before);
    for candidate in candidates(storage)?.filter(older) {
        match candidate.manifest {
            Ok((manifest, text)) => {
                (found.newest, found.text) = (Some(manifest), text);
                break;
            }
            Err(reason) => {
                found.damaged |= matches!(reason, Unusable::Damaged(_));
                found.rejected.push(reason.into_error());
            }
        }
    }
    Ok(found)
}
