//! Writes a store: all of it, or nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    format::FORMAT_VERSION,
    manifest::{CellEntry, MANIFEST_FILE, Manifest, SourceEntry, TokenizerEntry},
    reader::Store,
    shard_writer::ShardWriter,
};
use crate::{CellKey, DataError, Result};

/// Collects documents by cell and publishes them as a store.
///
/// Everything is written to a hidden folder beside the store's place, which is renamed as the last
/// act of [`StoreWriter::finish`]. A writer that is dropped before removes its folder. After a kill
/// the folder `.<name>.partial-*` stays behind; it is never read and may be deleted.
pub struct StoreWriter {
    out_dir: PathBuf,
    work_dir: TempDir,
    tokenizer: TokenizerEntry,
    shards: BTreeMap<CellKey, ShardWriter>,
    /// Cell names in lower case, to find those that differ in case only.
    folded_names: BTreeMap<String, String>,
}

impl StoreWriter {
    /// Starts a store that will lie at `out_dir`; parent folders are made.
    ///
    /// # Errors
    /// [`DataError::StoreExists`] if something lies there; [`DataError::Io`].
    pub fn create(out_dir: impl AsRef<Path>, tokenizer: TokenizerEntry) -> Result<Self> {
        let out_dir = out_dir.as_ref().to_owned();
        if out_dir.exists() {
            return Err(DataError::StoreExists { path: out_dir });
        }
        let parent = match out_dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(DataError::io("create folder", parent))?;
        let name = out_dir.file_name().unwrap_or_default().to_string_lossy();
        let work_dir = tempfile::Builder::new()
            .prefix(&format!(".{name}.partial-"))
            .tempdir_in(parent)
            .map_err(DataError::io("create a folder in", parent))?;
        let (shards, folded_names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { out_dir, work_dir, tokenizer, shards, folded_names })
    }

    /// Adds one document to the end of its cell. `source_bytes`: UTF-8 bytes of its text.
    ///
    /// # Errors
    /// [`DataError::DomainName`], [`DataError::CellCase`], [`DataError::TokenId`], or
    /// [`DataError::Io`].
    pub fn append(
        &mut self,
        cell: &CellKey,
        id: &str,
        source_bytes: u64,
        tokens: &[u32],
    ) -> Result<()> {
        let vocab_size = self.tokenizer.vocab_size;
        if let Some(&token) = tokens.iter().find(|&&token| token >= vocab_size) {
            return Err(DataError::TokenId { document: id.to_owned(), id: token, vocab_size });
        }
        if let Some(shard) = self.shards.get_mut(cell) {
            return shard.append(id, source_bytes, tokens);
        }
        let mut shard = self.create_shard(cell, id)?;
        shard.append(id, source_bytes, tokens)?;
        self.shards.insert(cell.clone(), shard);
        Ok(())
    }

    fn create_shard(&mut self, cell: &CellKey, document: &str) -> Result<ShardWriter> {
        if !cell.has_valid_domain() {
            let (document, domain) = (document.to_owned(), cell.domain.clone());
            return Err(DataError::DomainName { document, domain });
        }
        let second = cell.to_string();
        let domain = cell.domain.to_ascii_lowercase();
        match self.folded_names.get(&domain) {
            Some(first) if *first != cell.domain => {
                let same_quality = CellKey { domain: first.clone(), quality: cell.quality };
                return Err(DataError::CellCase { first: same_quality.to_string(), second });
            }
            Some(_) => {}
            None => {
                self.folded_names.insert(domain, cell.domain.clone());
            }
        }
        let path = self.work_dir.path().join(file_of(cell));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(DataError::io("create folder", folder))?;
        }
        // Two bytes hold ids up to 65,535.
        ShardWriter::create(path, if self.tokenizer.vocab_size <= 1 << 16 { 2 } else { 4 })
    }

    /// Completes the files, writes the manifest, publishes the store and opens it.
    ///
    /// # Errors
    /// [`DataError::NoDocuments`] when nothing was added; [`DataError::StoreExists`] when somebody
    /// else published one there meanwhile; [`DataError::Io`].
    pub fn finish(self, build_digest: &str, sources: Vec<SourceEntry>) -> Result<Store> {
        if self.shards.is_empty() {
            return Err(DataError::NoDocuments { num_sources: sources.len() });
        }
        let mut cells = Vec::new();
        for (key, shard) in self.shards {
            cells.push(finish_cell(&key, shard)?);
        }
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            tokenizer: self.tokenizer,
            build_digest: build_digest.to_owned(),
            cells,
            sources,
        };
        let path = self.work_dir.path().join(MANIFEST_FILE);
        let bytes = manifest.seal(&path)?;
        let write = |bytes: &[u8]| {
            let mut file = fs::File::create_new(&path)?;
            std::io::Write::write_all(&mut file, bytes)?;
            file.sync_all()
        };
        write(&bytes).map_err(DataError::io("write", path.as_path()))?;
        // Renaming onto a folder with files in it fails, onto an empty one it may not.
        if self.out_dir.exists() {
            return Err(DataError::StoreExists { path: self.out_dir });
        }
        fs::rename(self.work_dir.path(), &self.out_dir)
            .map_err(DataError::io("publish the store as", self.out_dir.as_path()))?;
        // The folder has moved: there is nothing left to remove.
        let _ = self.work_dir.keep();
        open_to_all(&self.out_dir)?;
        Store::open(&self.out_dir)
    }
}

fn file_of(cell: &CellKey) -> String {
    format!("{cell}.tokens")
}

fn finish_cell(key: &CellKey, shard: ShardWriter) -> Result<CellEntry> {
    tracing::debug!(path = %shard.path().display(), "closing token file");
    let finished = shard.finish()?;
    Ok(CellEntry {
        name: key.to_string(),
        domain: key.domain.clone(),
        quality: key.quality,
        num_tokens: finished.header.num_tokens,
        num_documents: finished.header.num_documents,
        source_bytes: finished.header.source_bytes,
        file: file_of(key),
        file_bytes: finished.file_bytes,
        blake3: finished.blake3,
    })
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
