//! Opens a store and checks that it is what was written.

use std::path::{Path, PathBuf};

use super::{
    manifest::{MANIFEST_FILE, Manifest},
    shard::CellShard,
};
use crate::{DataError, Result};

/// A token store, open for reading.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    manifest: Manifest,
    cells: Vec<CellShard>,
}

impl Store {
    /// Opens the store at a folder and verifies version, sizes and checksums of all files.
    ///
    /// Reads every byte once, several GB a second from memory.
    ///
    /// # Errors
    /// [`DataError::Io`] for a missing file, [`DataError::Manifest`], [`DataError::StoreVersion`],
    /// [`DataError::FileSize`], [`DataError::Checksum`] or [`DataError::ShardHeader`], each naming
    /// the file and what differs.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let manifest_path = path.join(MANIFEST_FILE);
        let bytes = std::fs::read(&manifest_path)
            .map_err(DataError::io("read store manifest", manifest_path.as_path()))?;
        let manifest = Manifest::unseal(&manifest_path, &bytes)?;
        let cells: Result<Vec<_>> =
            manifest.cells.iter().map(|entry| CellShard::open(&path, entry)).collect();
        Ok(Self { path, cells: cells?, manifest })
    }

    /// Checks that the tokens are those of a tokenizer, by its digest.
    ///
    /// # Errors
    /// [`DataError::TokenizerMismatch`].
    pub fn require_tokenizer(&self, digest: &str) -> Result<()> {
        let found = &self.manifest.tokenizer.digest;
        if found == digest {
            return Ok(());
        }
        Err(DataError::TokenizerMismatch {
            path: self.path.clone(),
            found: found.clone(),
            needed: digest.to_owned(),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the store is made of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The cells, in the order of their names; a cell's index is its place here.
    pub fn cells(&self) -> &[CellShard] {
        &self.cells
    }

    /// The names of the cells, by index.
    pub fn cell_names(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.name().to_owned()).collect()
    }
}
