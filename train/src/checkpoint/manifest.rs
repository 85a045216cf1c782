//! What a checkpoint consists of; written last, it is the commit.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FORMAT_VERSION, MANIFEST};
use crate::error::TrainError;

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
    /// Seed of the run.
    pub seed: u64,
    /// Digest of the recipe.
    pub recipe: String,
    /// Digest of the optimizer table.
    pub optimizer_table: String,
    /// Digest of the training store and its tokenizer.
    pub data: String,
    /// Size and checksum of each file.
    pub files: BTreeMap<String, FileEntry>,
}

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 in hexadecimal.
    pub blake3: String,
}

/// A manifest with its own checksum, so that a flipped byte in it is found too.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    blake3: String,
}

impl FileEntry {
    /// The entry of a file on disk.
    pub(crate) fn of(path: &Path) -> Result<Self, TrainError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap(path).map_err(TrainError::io("read", path))?;
        Ok(Self { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() })
    }
}

impl Manifest {
    /// Reads the manifest of a checkpoint's folder.
    ///
    /// # Errors
    /// If there is none, it is damaged, or of another version.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| TrainError::checkpoint(&path, format!("no manifest ({error})")))?;
        let damaged = |problem: String| TrainError::checkpoint(&path, problem);
        let sealed: Sealed = serde_json::from_str(&text)
            .map_err(|error| damaged(format!("manifest cannot be read ({error})")))?;
        let found = digest(&sealed.manifest);
        if found != sealed.blake3 {
            return Err(damaged(format!("manifest is altered: {found}, needed {}", sealed.blake3)));
        }
        if sealed.manifest.format_version != FORMAT_VERSION {
            let found = sealed.manifest.format_version;
            return Err(damaged(format!("format version {found}, needed {FORMAT_VERSION}")));
        }
        Ok(sealed.manifest)
    }

    /// A digest of the whole manifest, in hexadecimal.
    pub fn digest(&self) -> String {
        digest(self)
    }

    /// Writes the manifest; with it the checkpoint is whole.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(self, folder: &Path) -> Result<(), TrainError> {
        let blake3 = digest(&self);
        let text = serde_json::to_string_pretty(&Sealed { manifest: self, blake3 })
            .expect("a manifest of plain values");
        super::save::write_file(&folder.join(MANIFEST), text.as_bytes())
    }

    /// Checks size and checksum of every file.
    ///
    /// # Errors
    /// The first file that is missing or differs, with found and needed.
    pub fn verify(&self, folder: &Path) -> Result<(), TrainError> {
        for (name, needed) in &self.files {
            let path = folder.join(name);
            let size = std::fs::metadata(&path)
                .map_err(|error| TrainError::checkpoint(&path, error.to_string()))?
                .len();
            if size != needed.bytes {
                let problem = format!("{size} bytes, needed {}", needed.bytes);
                return Err(TrainError::checkpoint(&path, problem));
            }
            let found = FileEntry::of(&path)?;
            if found != *needed {
                let problem = format!("checksum {}, needed {}", found.blake3, needed.blake3);
                return Err(TrainError::checkpoint(&path, problem));
            }
        }
        Ok(())
    }
}

fn digest(manifest: &Manifest) -> String {
    let text = serde_json::to_string(manifest).expect("a manifest of plain values");
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
