//! A source: where documents come from.

mod config;
mod find;
mod format;
mod pool;
pub(crate) mod raw;

use std::{io, path::Path, sync::Arc};

pub use config::{ColumnsConfig, Scalar, SourceConfig};
pub use find::find_sources;
pub(crate) use format::PARQUET_MAGIC;
pub use format::{Compression, Format};
pub use pool::Pool;

use serde::{Deserialize, Serialize};

use crate::{DataError, Limits, Reason, Result};
use raw::Contents;

/// A corpus file, on disk or compiled in; or a folder of text files, each of which is a document.
///
/// Whether a file is compressed is decided by its first bytes, not by its name. Every frame of a zstd
/// file and every member of a gzip file is read, as in files made by appending.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    files: Files,
    config: Arc<SourceConfig>,
}

#[derive(Clone, Debug)]
enum Files {
    One(Contents),
    /// In the order of their names.
    Texts(Arc<[TextFile]>),
}

/// A document of a folder.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Name of the file, as [`Source::name`] would have it.
    pub(crate) name: Arc<str>,
    /// Path under the folder.
    pub(crate) id: String,
    pub(crate) contents: Contents,
}

/// How a source is to be read.
pub(crate) enum Opening {
    JsonLines(Contents),
    Parquet(Contents),
    Texts(Arc<[TextFile]>),
}

/// A file that a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name in messages, ledgers and documents.
    pub name: String,
    /// How documents lie in it.
    pub format: Format,
    /// How it is compressed as a whole.
    pub compression: Compression,
    /// Its size as it lies there.
    pub bytes: u64,
}

/// A file as it lay there when it was read, and how it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceIdentity {
    /// The name that its documents carry.
    pub name: String,
    /// BLAKE3 of its bytes, in hex.
    pub blake3: String,
    /// Digest of what the recipe makes of its fields, and of the texts that are taken.
    pub reading: String,
}

impl Source {
    /// A file on disk; it is opened when it is read.
    pub fn file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let files = Files::One(Contents::File(path.to_owned()));
        Self { name: path.display().to_string(), files, config: Arc::default() }
    }

    /// The contents of a file that is part of the program.
    pub fn bytes(name: impl Into<String>, bytes: &'static [u8]) -> Self {
        let files = Files::One(Contents::Static(bytes));
        Self { name: name.into(), files, config: Arc::default() }
    }

    /// The name used in messages, ledgers and default document fields: the path, relative to the
    /// recipe's folder where the recipe has it so, with `/` between folders. Of text files, that of
    /// their folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the recipe's source that it belongs to; empty for a file of its own.
    pub fn group(&self) -> &str {
        &self.config.name
    }

    /// What its fields mean.
    pub fn config(&self) -> &SourceConfig {
        &self.config
    }

    pub(crate) fn shared_config(&self) -> &Arc<SourceConfig> {
        &self.config
    }

    /// What its documents are not left out for.
    pub fn exempt(&self) -> &[Reason] {
        &self.config.exempt
    }

    /// BLAKE3 of the file as it lies there, in hex; of a folder, that of the names and digests of its
    /// files.
    ///
    /// # Errors
    /// [`DataError::Io`] if a file cannot be read.
    pub fn digest(&self) -> Result<String> {
        let files = match &self.files {
            Files::One(contents) => return digest_of(contents, &self.name),
            Files::Texts(files) => files,
        };
        let mut hasher = blake3::Hasher::new();
        for file in files.iter() {
            hasher.update(&(file.name.len() as u64).to_le_bytes());
            hasher.update(file.name.as_bytes());
            hasher.update(digest_of(&file.contents, &file.name)?.as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// What decisions about its documents hold for: each of its files, what the recipe makes of its
    /// fields, and which texts are taken.
    ///
    /// # Errors
    /// [`DataError::Io`] if a file cannot be read.
    pub fn identities(&self, limits: &Limits) -> Result<Vec<SourceIdentity>> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&limits.max_bytes.to_le_bytes());
        hasher.update(&limits.min_characters.to_le_bytes());
        hasher.update(self.meaning_digest().unwrap_or_default().as_bytes());
        let reading = hasher.finalize().to_hex().to_string();
        let identity = |name: &str, contents: &Contents| {
            let (name, reading) = (name.to_owned(), reading.clone());
            Ok(SourceIdentity { blake3: digest_of(contents, &name)?, name, reading })
        };
        match &self.files {
            Files::One(contents) => Ok(vec![identity(&self.name, contents)?]),
            Files::Texts(files) => {
                files.iter().map(|file| identity(&file.name, &file.contents)).collect()
            }
        }
    }

    /// Digest of what the recipe makes of its fields, in hex: the same file gives other documents
    /// under another. None for what [`Source::file`] assumes.
    pub fn meaning_digest(&self) -> Option<String> {
        let SourceConfig { format, domain, quality, require, columns, .. } = (*self.config).clone();
        let meaning =
            SourceConfig { format, domain, quality, require, columns, ..Default::default() };
        if meaning == SourceConfig::default() {
            return None;
        }
        let json = serde_json::to_vec(&meaning).expect("plain values with string keys");
        Some(blake3::hash(&json).to_hex().to_string())
    }

    /// The files, with what they hold.
    ///
    /// # Errors
    /// [`DataError::Io`] if a file cannot be read, [`DataError::UnreadableFormat`].
    pub fn files(&self) -> Result<Vec<SourceFile>> {
        match &self.files {
            Files::One(contents) => Ok(vec![self.look_at(&self.name, contents)?]),
            Files::Texts(files) => {
                files.iter().map(|file| self.look_at(&file.name, &file.contents)).collect()
            }
        }
    }

    fn look_at(&self, name: &str, contents: &Contents) -> Result<SourceFile> {
        let head = contents.head(name)?;
        let format = self.config.format_of(name, &head);
        let compression = compression_of(name, format, &head)?;
        Ok(SourceFile { name: name.to_owned(), format, compression, bytes: contents.len()? })
    }

    /// Finds out how to read it.
    pub(crate) fn opening(&self) -> Result<Opening> {
        let contents = match &self.files {
            Files::Texts(files) => return Ok(Opening::Texts(Arc::clone(files))),
            Files::One(contents) => contents.clone(),
        };
        let head = contents.head(&self.name)?;
        Ok(match self.config.format_of(&self.name, &head) {
            Format::JsonLines => Opening::JsonLines(contents),
            Format::Parquet => Opening::Parquet(contents),
            Format::Text => {
                let name: Arc<str> = self.name.as_str().into();
                let id = Path::new(&self.name).file_name().map(|id| id.to_string_lossy());
                let id = id.unwrap_or_default().into_owned();
                Opening::Texts([TextFile { name, id, contents }].into())
            }
        })
    }
}

fn compression_of(name: &str, format: Format, head: &[u8]) -> Result<Compression> {
    if format == Format::Parquet {
        return Ok(Compression::None);
    }
    let unreadable = |found| DataError::UnreadableFormat { file: name.to_owned(), found };
    Compression::detect(head).map_err(unreadable)
}

fn digest_of(contents: &Contents, name: &str) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut contents.open()?, &mut hasher).map_err(DataError::io("read", name))?;
    Ok(hasher.finalize().to_hex().to_string())
}
