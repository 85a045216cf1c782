//! What a checkpoint consists of; written last, it is the commit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use fulmar_ep::Layout;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::{FORMAT_VERSION, MANIFEST, file_name};
use crate::config::Parent;
use crate::error::TrainError;
use crate::operations::Position;
use crate::state::Assignments;
use crate::storage::Storage;

/// The contents of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub format_version: u32,
    /// Completed updates.
    pub step: u64,
    /// Batches taken, skipped ones included.
    pub batches: u64,
    /// Assignments since the last boundary of blocks, for the gate of longer rows.
    pub since_boundary: Assignments,
    /// Batches after which each context stage opened that was open.
    #[serde(default)]
    pub opened: Vec<u64>,
    /// Seed of the run.
    pub seed: u64,
    /// Where the generators of the run stand.
    pub generators: Vec<Generator>,
    /// Rows taken from each cell of the store; compared with the recomputed ones at load.
    pub consumed: BTreeMap<String, u64>,
    /// Digest of the recipe.
    pub recipe: String,
    /// Digest of the optimizer table.
    pub optimizer_table: String,
    /// Digest of the training store and its tokenizer.
    pub data: String,
    /// Name of the exchange in force.
    pub exchange: String,
    /// How the ranks that wrote it were laid out.
    pub layout: SavedLayout,
    /// Which start of the run wrote it, from 1.
    pub attempt: u64,
    /// The checkpoint of another run that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Digest of all weights, whatever the layout.
    pub weights: String,
    /// Digest of weights, moments and pending balance, whatever the layout.
    pub state: String,
    /// Sizes and checksums of each file.
    pub files: BTreeMap<String, FileEntry>,
}

/// A generator of random numbers; all draws of a run follow from its seed and a position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// What is drawn.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Draws taken.
    pub position: u64,
}

/// [`Layout`] in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "as in `Layout`")]
pub struct SavedLayout {
    pub replicas: usize,
    pub shards: usize,
    pub context: usize,
}

impl From<Layout> for SavedLayout {
    fn from(Layout { replicas, shards, context }: Layout) -> Self {
        Self { replicas, shards, context }
    }
}

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// What comes before the tensors; of a file without tensors, all of it.
    pub header: Header,
    /// Its tensors and slices by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensors: BTreeMap<String, TensorEntry>,
}

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 in hexadecimal.
    pub blake3: String,
}

/// A tensor, or the slice of a stack of experts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// What it is of the state.
    pub kind: Kind,
    /// Type of its entries.
    pub dtype: Dtype,
    /// Its shape; of a slice, its own.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: Range<u64>,
    /// BLAKE3 of each of its units in hexadecimal: of a slice one an expert, else one.
    pub units: Vec<String>,
}

/// What a tensor is of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A parameter.
    Weight,
    /// A momentum or moment of the optimizer.
    Moment,
    /// The pending balance of a layer.
    Balance,
}

/// Why a manifest is none.
#[derive(Debug)]
pub enum Unusable {
    /// It was never written, or not to its end: the save was interrupted.
    Unfinished(TrainError),
    /// It was whole once, as far as can be known.
    Damaged(TrainError),
}

impl Unusable {
    /// The reason.
    pub fn into_error(self) -> TrainError {
        match self {
            Self::Unfinished(error) | Self::Damaged(error) => error,
        }
    }
}

/// A manifest with its own checksum, so that a flipped bit in it is found too.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    blake3: String,
}

impl Manifest {
    /// Reads the manifest of the checkpoint after `step` updates.
    ///
    /// # Errors
    /// If there is none, it is damaged, or of another version.
    pub fn read(storage: &dyn Storage, step: u64) -> Result<Self, TrainError> {
        Self::read_text(storage, step).map(|(manifest, _)| manifest).map_err(Unusable::into_error)
    }

    /// As [`read`](Self::read), with the text, for peers to [parse](Self::parse).
    pub(crate) fn read_text(storage: &dyn Storage, step: u64) -> Result<(Self, String), Unusable> {
        let name = file_name(step, MANIFEST);
        let place = storage.locate(&name);
        let text = storage.read_all(&name).map_err(|error| {
            let path = place.clone().into();
            if error.kind() == std::io::ErrorKind::NotFound {
                let problem = format!("no manifest ({error})");
                return Unusable::Unfinished(TrainError::Checkpoint { path, problem });
            }
            let problem = format!("manifest cannot be read ({error})");
            Unusable::Damaged(TrainError::Checkpoint { path, problem })
        })?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let manifest = Self::parse(&text, &place)?;
        if manifest.step != step {
            let problem = format!("manifest of step {}, needed {step}", manifest.step);
            return Err(Unusable::Damaged(TrainError::Checkpoint { path: place.into(), problem }));
        }
        Ok((manifest, text))
    }

    /// Reads a manifest; `place` names it in errors.
    pub(crate) fn parse(text: &str, place: &str) -> Result<Self, Unusable> {
        let path = PathBuf::from(place);
        let error = |problem: String| TrainError::Checkpoint { path: path.clone(), problem };
        let unreadable = |cause: serde_json::Error| {
            let problem = error(format!("manifest cannot be read ({cause})"));
            if cause.is_eof() { Unusable::Unfinished(problem) } else { Unusable::Damaged(problem) }
        };
        let damaged = |problem: String| Unusable::Damaged(error(problem));
        let value: serde_json::Value = serde_json::from_str(text).map_err(unreadable)?;
        // Before anything else, since another version has other fields.
        let found = &value["manifest"]["format_version"];
        if *found != FORMAT_VERSION {
            let advice = "it was written by another release";
            return Err(damaged(format!(
                "format version {found}, needed {FORMAT_VERSION}: {advice}"
            )));
        }
        let sealed: Sealed = serde_json::from_value(value).map_err(unreadable)?;
        let found = sealed.manifest.digest();
        if found != sealed.blake3 {
            return Err(damaged(format!("manifest is altered: {found}, needed {}", sealed.blake3)));
        }
        if seal(&sealed) != text {
            return Err(damaged("manifest is altered: it is not as it was written".to_owned()));
        }
        Ok(sealed.manifest)
    }

    /// A digest of the whole manifest, in hexadecimal.
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).expect("a manifest of plain values");
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// Writes the manifest; with it the checkpoint is whole.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(self, storage: &dyn Storage) -> Result<(), TrainError> {
        let name = file_name(self.step, MANIFEST);
        let sealed = Sealed { blake3: self.digest(), manifest: self };
        let written = storage.write_all(&name, seal(&sealed).as_bytes());
        written.map_err(TrainError::storage("write", storage, &name))
    }

    /// Where the run stood.
    pub fn position(&self) -> Position {
        Position { step: self.step, batches: self.batches }
    }

    /// Bytes of all files.
    pub fn num_bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// Checks the sizes of all files against those in `found`, by name within the checkpoint.
    pub(crate) fn check_sizes(
        &self,
        storage: &dyn Storage,
        found: &BTreeMap<&str, u64>,
    ) -> Result<(), TrainError> {
        for (file, entry) in &self.files {
            let problem = match found.get(&file[..]) {
                None => format!("missing, needed {} bytes", entry.bytes),
                Some(bytes) if *bytes != entry.bytes => {
                    format!("{bytes} bytes, needed {}", entry.bytes)
                }
                Some(_) => continue,
            };
            let path = storage.locate(&file_name(self.step, file)).into();
            return Err(TrainError::Checkpoint { path, problem });
        }
        Ok(())
    }
}

fn seal(sealed: &Sealed) -> String {
    serde_json::to_string(sealed).expect("a manifest of plain values")
}
