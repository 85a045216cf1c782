//! Writes a store: all of it, or nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    cell_writer::{CellWriter, ShardLimits},
    format::FORMAT_VERSION,
    index::NewDocument,
    manifest::{CellEntry, FileEntry, MANIFEST_FILE, Manifest, SourceEntry, TokenizerEntry},
    reader::Store,
};
use crate::{CellKey, DataError, Result};

/// Collects documents by cell and publishes them as a store.
///
/// Everything is written to a hidden folder beside the store's place, which is renamed as the last
/// act of [`StoreWriter::finish`]. A writer that is dropped before removes its folder. After a kill
/// the folder `.<name>.partial-*` stays behind; it is never read and may be deleted.
///
/// The index of the shards that are open is held in memory: [`StoreWriter::close_cell`].
pub struct StoreWriter {
    out_dir: PathBuf,
    work_dir: PathBuf,
    /// Removes `work_dir` unless it is published.
    guard: Option<TempDir>,
    tokenizer: TokenizerEntry,
    limits: ShardLimits,
    open: BTreeMap<CellKey, CellWriter>,
    closed: BTreeMap<CellKey, CellEntry>,
    /// Cell names in lower case, to find those that differ in case only.
    folded_names: BTreeMap<String, String>,
    files: Vec<FileEntry>,
}

/// What a store tells of its making.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Digest of all that decides the contents.
    pub build_digest: String,
    /// Digests of judges and of the choice of cells.
    pub rules: Vec<String>,
    /// The files read.
    pub sources: Vec<SourceEntry>,
    /// Lines of the quarantine file, if there is one.
    pub quarantined: u64,
}

impl StoreWriter {
    /// Starts a store that will lie at `out_dir`; parent folders are made.
    ///
    /// # Errors
    /// [`DataError::StoreExists`] if something lies there; [`DataError::Io`].
    pub fn create(out_dir: impl AsRef<Path>, tokenizer: TokenizerEntry) -> Result<Self> {
        let out_dir = out_dir.as_ref();
        if out_dir.exists() {
            return Err(DataError::StoreExists { path: out_dir.to_owned() });
        }
        let parent = parent_of(out_dir)?;
        let name = out_dir.file_name().unwrap_or_default().to_string_lossy();
        let guard = tempfile::Builder::new()
            .prefix(&format!(".{name}.partial-"))
            .tempdir_in(&parent)
            .map_err(DataError::io("create a folder in", parent.as_path()))?;
        let mut writer = Self::create_in(guard.path().to_owned(), out_dir, tokenizer);
        writer.guard = Some(guard);
        Ok(writer)
    }

    /// As [`StoreWriter::create`], in a folder that the caller has made and removes.
    pub(crate) fn create_in(work_dir: PathBuf, out_dir: &Path, tokenizer: TokenizerEntry) -> Self {
        Self {
            out_dir: out_dir.to_owned(),
            work_dir,
            guard: None,
            tokenizer,
            limits: ShardLimits::default(),
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            folded_names: BTreeMap::new(),
            files: Vec::new(),
        }
    }

    /// Sets where a shard ends and the next one begins.
    #[must_use]
    pub fn limits(mut self, limits: ShardLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds one document to the end of its cell.
    ///
    /// # Errors
    /// [`DataError::DomainName`], [`DataError::CellCase`], [`DataError::TokenId`], or
    /// [`DataError::Io`].
    ///
    /// # Panics
    /// If the cell was closed.
    pub fn append(&mut self, cell: &CellKey, document: &NewDocument<'_>) -> Result<()> {
        self.tokenizer.check_ids(document.id, document.tokens)?;
        if let Some(writer) = self.open.get_mut(cell) {
            return writer.append(document);
        }
        assert!(!self.closed.contains_key(cell), "StoreWriter::append: cell `{cell}` is closed");
        check_cell(cell, document.id, &mut self.folded_names)?;
        let token_bytes = super::format::token_bytes(self.tokenizer.vocab_size);
        let mut writer = CellWriter::create(&self.work_dir, cell, token_bytes, self.limits)?;
        writer.append(document)?;
        self.open.insert(cell.clone(), writer);
        Ok(())
    }

    /// Completes the files of a cell, which takes no more documents.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn close_cell(&mut self, cell: &CellKey) -> Result<()> {
        if let Some(writer) = self.open.remove(cell) {
            self.closed.insert(cell.clone(), writer.finish()?);
        }
        Ok(())
    }

    /// Adds a file of the store beside its cells, such as the tokenizer, from its pieces.
    ///
    /// # Errors
    /// The first error of `pieces`; [`DataError::Io`].
    pub fn add_file(
        &mut self,
        name: &str,
        pieces: impl IntoIterator<Item = Result<Vec<u8>>>,
    ) -> Result<()> {
        let path = self.work_dir.join(name);
        let refused = || DataError::io("write", path.as_path());
        let mut file = fs::File::create(&path).map_err(refused())?;
        let (mut hasher, mut file_bytes) = (blake3::Hasher::new(), 0);
        for piece in pieces {
            let piece = piece?;
            file.write_all(&piece).map_err(refused())?;
            hasher.update(&piece);
            file_bytes += piece.len() as u64;
        }
        file.sync_all().map_err(refused())?;
        let blake3 = hasher.finalize().to_hex().to_string();
        self.files.push(FileEntry { file: name.to_owned(), file_bytes, blake3 });
        Ok(())
    }

    /// Completes the files, writes the manifest, publishes the store and opens it.
    ///
    /// # Errors
    /// [`DataError::NoDocuments`] when nothing was added; [`DataError::StoreExists`] when somebody
    /// else published one there meanwhile; [`DataError::Io`].
    pub fn finish(mut self, origin: Origin) -> Result<Store> {
        let open: Vec<CellKey> = self.open.keys().cloned().collect();
        open.iter().try_for_each(|cell| self.close_cell(cell))?;
        if self.closed.is_empty() {
            return Err(DataError::NoDocuments { num_sources: origin.sources.len() });
        }
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            tokenizer: self.tokenizer,
            build_digest: origin.build_digest,
            rules: origin.rules,
            cells: self.closed.into_values().collect(),
            sources: origin.sources,
            quarantined: origin.quarantined,
            files: self.files,
        };
        let path = self.work_dir.join(MANIFEST_FILE);
        write_synced(&path, &manifest.seal(&path)?)?;
        // Renaming onto a folder with files in it fails, onto an empty one it may not.
        if self.out_dir.exists() {
            return Err(DataError::StoreExists { path: self.out_dir });
        }
        fs::rename(&self.work_dir, &self.out_dir)
            .map_err(DataError::io("publish the store as", self.out_dir.as_path()))?;
        // The folder has moved: there is nothing left to remove.
        if let Some(guard) = self.guard {
            let _ = guard.keep();
        }
        open_to_all(&self.out_dir)?;
        sync_folder(&parent_of(&self.out_dir)?)?;
        Store::open(&self.out_dir)
    }
}

/// Refuses a cell that could not be a folder beside the others; `document` is the first in it.
pub(crate) fn check_cell(
    cell: &CellKey,
    document: &str,
    folded_names: &mut BTreeMap<String, String>,
) -> Result<()> {
    if !cell.has_valid_domain() {
        let (document, domain) = (document.to_owned(), cell.domain.clone());
        return Err(DataError::DomainName { document, domain });
    }
    let folded =
        folded_names.entry(cell.domain.to_ascii_lowercase()).or_insert_with(|| cell.domain.clone());
    if *folded == cell.domain {
        return Ok(());
    }
    let first = CellKey { domain: folded.clone(), quality: cell.quality }.to_string();
    Err(DataError::CellCase { first, second: cell.to_string() })
}

/// The folder that holds a path, which is made.
pub(crate) fn parent_of(path: &Path) -> Result<PathBuf> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(DataError::io("create folder", parent))?;
    Ok(parent.to_owned())
}

/// Writes a new file and brings it to disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(DataError::io("write", path))
}

/// Brings the names in a folder to disk, where that is a thing one can do.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(unix) {
        let synced = fs::File::open(path).and_then(|folder| folder.sync_all());
        synced.map_err(DataError::io("bring to disk the names in", path))?;
    }
    Ok(())
}

/// Gives a published store the rights of an ordinary folder; temporary ones are private.
#[cfg(unix)]
fn open_to_all(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(DataError::io("set the rights of", path))
}

#[cfg(not(unix))]
fn open_to_all(_path: &Path) -> Result<()> {
    Ok(())
}
