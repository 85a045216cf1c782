//! Opens a store and checks that it is what was written.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rayon::prelude::*;

use super::{
    cell::Cell,
    manifest::{MANIFEST_FILE, Manifest, TOKENIZER_FILE, read_file},
    shard::Shard,
};
use crate::{DataError, Result, Tokenizer};

/// Time between two looks at the files while they are read. A look costs a microsecond a file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A token store, open for reading.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    manifest: Manifest,
    cells: Vec<Cell>,
    opened: Instant,
    /// Milliseconds from `opened` to the next look at the files.
    next_look: AtomicU64,
}

impl Store {
    /// Opens the store at a folder and verifies version, sizes and checksums of all files.
    ///
    /// Reads every byte once, on all threads; several GB a second from memory.
    ///
    /// # Errors
    /// Those of [`Store::open_unverified`] and [`Store::verify`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let store = Self::open_unverified(path)?;
        store.verify()?;
        Ok(store)
    }

    /// Opens the store at a folder and checks the manifest, and version, size and header of every
    /// shard, but not what the shards hold: at once, however large the store.
    ///
    /// # Errors
    /// [`DataError::Io`] for a missing file, [`DataError::Manifest`], [`DataError::StoreVersion`],
    /// [`DataError::FileSize`], [`DataError::DamagedHeader`] or [`DataError::ShardHeader`], each
    /// naming the file and what differs.
    pub fn open_unverified(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let manifest_path = path.join(MANIFEST_FILE);
        let bytes = std::fs::read(&manifest_path)
            .map_err(DataError::io("read store manifest", manifest_path.as_path()))?;
        let manifest = Manifest::unseal(&manifest_path, &bytes)?;
        let cells: Result<Vec<_>> =
            manifest.cells.iter().map(|entry| Cell::open(&path, entry)).collect();
        let next_look = AtomicU64::new(0);
        Ok(Self { path, cells: cells?, manifest, opened: Instant::now(), next_look })
    }

    /// Reads every byte of every file and compares the checksums with the manifest.
    ///
    /// # Errors
    /// The first of [`Store::damage`].
    pub fn verify(&self) -> Result<()> {
        self.damage().into_iter().next().map_or(Ok(()), Err)
    }

    /// As [`Store::verify`], for all files: what is wrong with each that is not as it was written.
    pub fn damage(&self) -> Vec<DataError> {
        let files = self.manifest.files.iter();
        let files = files.filter_map(|entry| read_file(&self.path, entry).err());
        let shards: Vec<&Shard> = self.shards().collect();
        let shards: Vec<DataError> =
            shards.par_iter().filter_map(|shard| shard.verify().err()).collect();
        files.chain(shards).collect()
    }

    /// Looks whether a shard was removed, replaced or written to since the store was opened, by the
    /// file's place, size and time. What is written without a change of these is seen by
    /// [`Store::verify`] alone.
    ///
    /// # Errors
    /// [`DataError::ShardChanged`], or [`DataError::Io`] for one that is gone.
    pub fn check_unchanged(&self) -> Result<()> {
        self.shards().try_for_each(Shard::check_unchanged)
    }

    /// As [`Store::check_unchanged`], at most once a second; for callers that read in between.
    ///
    /// # Errors
    /// As [`Store::check_unchanged`].
    pub fn check_now_and_then(&self) -> Result<()> {
        let now = self.opened.elapsed().as_millis() as u64;
        if now < self.next_look.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.next_look.store(now + LOOK_EVERY.as_millis() as u64, Ordering::Relaxed);
        self.check_unchanged()
    }

    /// The tokenizer that made the tokens, from the store itself; its marks are those of the store.
    ///
    /// # Errors
    /// [`DataError::NoTokenizer`] for a store that was written without one; those of reading it.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let entry = self.manifest.files.iter().find(|entry| entry.file == TOKENIZER_FILE);
        let Some(entry) = entry else {
            return Err(DataError::NoTokenizer { path: self.path.clone() });
        };
        let bytes = read_file(&self.path, entry)?;
        let name = self.path.join(TOKENIZER_FILE).display().to_string();
        let marks = &self.manifest.tokenizer;
        let tokenizer = Tokenizer::with_mark_ids(&name, &bytes, marks.bos_id, marks.eos_id)?;
        self.require_tokenizer(tokenizer.digest())?;
        Ok(tokenizer)
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
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The names of the cells, by index.
    pub fn cell_names(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.name().to_owned()).collect()
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.cells.iter().flat_map(Cell::shards)
    }
}
