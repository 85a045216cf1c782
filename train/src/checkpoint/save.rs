//! A state into files, and the commit that makes a checkpoint of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulmar_ep::World;
use fulmar_ep::transport::TransportError;

use super::manifest::{FileEntry, Manifest};
use super::snapshot::{Facts, Snapshot};
use super::write::{write_plain, write_tensors};
use super::{BALANCE, RECIPE, census, digest, file_name, step_name};
use crate::background::Pace;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::state::TrainState;
use crate::storage::Storage;

/// What a checkpoint says of the run it belongs to.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Where its checkpoints lie.
    pub storage: &'a Arc<dyn Storage>,
    /// Its recipe.
    pub config: &'a RunConfig,
    /// Digest of the training store and its tokenizer.
    pub data: &'a str,
    /// Rows taken from each cell of the store at the state in question.
    pub consumed: BTreeMap<String, u64>,
    /// Name of the exchange in force.
    pub exchange: &'a str,
    /// Which start of the run this is; what the first rank says counts.
    pub attempt: u64,
}

impl<'a> Run<'a> {
    /// A run at its first start, whose rows are not counted.
    pub fn new(storage: &'a Arc<dyn Storage>, config: &'a RunConfig, data: &'a str) -> Self {
        let exchange = config.parallel.dispatch.name();
        let consumed = BTreeMap::new();
        Self { storage, config, data, consumed, exchange, attempt: 1 }
    }
}

/// The files of a rank, by name within the checkpoint.
pub type Files = BTreeMap<String, FileEntry>;

/// A checkpoint that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its step.
    pub step: u64,
    /// Path or address of its folder.
    pub place: String,
    /// Bytes of all its files but the manifest.
    pub bytes: u64,
}

/// Saves the state, and waits for it; every rank calls it and writes its part.
///
/// Files are final when written and the manifest comes last, so an interrupted save leaves a
/// folder that no reader takes for a checkpoint, and nothing is renamed or deleted.
///
/// # Errors
/// [`TrainError::NotSaved`] on every rank, naming the first rank that could not write and why; or if
/// a peer is lost.
pub fn save(run: &Run<'_>, state: &TrainState, world: &World) -> Result<Saved, TrainError> {
    let snapshot = Snapshot::new(run, state, world);
    let facts = snapshot.facts.clone();
    let own = snapshot.write(&**run.storage, &Pace::none());
    commit(&**run.storage, &facts, own, world)?
}

impl Snapshot {
    /// Step and place, and all that the manifest says beside the files.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Writes this rank's part, a tensor after the other, at this pace; each is let go when it is
    /// written.
    ///
    /// # Errors
    /// The file that could not be written.
    pub fn write(self, storage: &dyn Storage, pace: &Pace) -> Result<Files, TrainError> {
        let Self { part, part_file, balance, recipe, facts } = self;
        let name = |file: &str| file_name(facts.manifest.step, file);
        let mut files = Files::new();
        let entry = write_tensors(storage, &name(&part_file), part, pace)?;
        files.insert(part_file, entry);
        if !balance.is_empty() {
            let entry = write_tensors(storage, &name(BALANCE), balance, pace)?;
            files.insert(BALANCE.to_owned(), entry);
        }
        if let Some(recipe) = recipe {
            let entry = write_plain(storage, &name(RECIPE), recipe.as_bytes())?;
            files.insert(RECIPE.to_owned(), entry);
        }
        Ok(files)
    }
}

/// Makes a checkpoint of what all ranks have written, `own` by this one: the first rank counts what
/// there is and writes the manifest. All ranks return the same.
///
/// # Errors
/// The outer one if a peer is lost; the inner one, [`TrainError::NotSaved`], if a rank could not
/// write.
pub(crate) fn commit(
    storage: &dyn Storage,
    facts: &Facts,
    own: Result<Files, TrainError>,
    world: &World,
) -> Result<Result<Saved, TrainError>, TransportError> {
    let step = facts.manifest.step;
    let not_saved = |rank, problem| Ok(Err(TrainError::NotSaved { step, rank, problem }));
    let own = own.map_err(|error| error.chain());
    let own = serde_json::to_vec(&own).expect("entries are plain values");
    let mut files = Files::new();
    for (rank, written) in world.all.gather_bytes("files of a checkpoint", &own)?.iter().enumerate()
    {
        match serde_json::from_slice(written).expect("what a peer has written") {
            Ok::<Files, String>(mut of_rank) => files.append(&mut of_rank),
            Err(problem) => return not_saved(rank, problem),
        }
    }
    let bytes = files.values().map(|file| file.bytes).sum();
    let problem = match world.is_first().then(|| seal(storage, facts, files)) {
        Some(Err(error)) => error.chain(),
        _ => String::new(),
    };
    let problem = world.all.bytes_of_first("manifest", problem.as_bytes())?;
    if !problem.is_empty() {
        return not_saved(0, String::from_utf8_lossy(&problem).into_owned());
    }
    Ok(Ok(Saved { step, place: storage.locate(&step_name(step)), bytes }))
}

/// Counts what was written, and writes the manifest.
fn seal(storage: &dyn Storage, facts: &Facts, files: Files) -> Result<(), TrainError> {
    let census = census::take(&files, &facts.expected);
    if let Some(problem) = census.problems.first() {
        let path = storage.locate(&step_name(facts.manifest.step)).into();
        return Err(TrainError::Checkpoint { path, problem: format!("{problem}; found {census}") });
    }
    let digest::Digests { weights, state } = digest::of_files(&files);
    Manifest { weights, state, files, ..facts.manifest.clone() }.write(storage)
}
