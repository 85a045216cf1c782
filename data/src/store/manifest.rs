//! The manifest: what a store is made of, and the checksum of every file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::format::FORMAT_VERSION;
use crate::{DataError, DocumentMarks, Ledger, Result, Tokenizer};

/// Name of the manifest within a store.
pub const MANIFEST_FILE: &str = "store.json";

/// Contents of a store, as in `store.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of all files of the store.
    pub format_version: u32,
    /// What made the tokens.
    pub tokenizer: TokenizerEntry,
    /// Digest of sources, tokenizer, marks and format: equal for stores built of the same things.
    pub build_digest: String,
    /// Cells in the order of their names.
    pub cells: Vec<CellEntry>,
    /// Files that were read, in their order.
    pub sources: Vec<SourceEntry>,
}

/// The tokenizer of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerEntry {
    /// [`Tokenizer::digest`].
    pub digest: String,
    /// One more than the largest token id.
    pub vocab_size: u32,
    /// Id of the begin-of-text mark.
    pub bos_id: u32,
    /// Id of the end-of-text mark.
    pub eos_id: u32,
    /// Which marks stand around each document.
    pub marks: DocumentMarks,
}

impl TokenizerEntry {
    /// Describes a tokenizer as used with these marks.
    pub fn new(tokenizer: &Tokenizer, marks: DocumentMarks) -> Self {
        Self {
            digest: tokenizer.digest().to_owned(),
            vocab_size: tokenizer.vocab_size(),
            bos_id: tokenizer.bos_id(),
            eos_id: tokenizer.eos_id(),
            marks,
        }
    }
}

/// One cell of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEntry {
    /// `<domain>/q<quality>`.
    pub name: String,
    /// Domain of its documents.
    pub domain: String,
    /// Quality of its documents.
    pub quality: u32,
    /// Tokens, document marks included.
    pub num_tokens: u64,
    /// Documents.
    pub num_documents: u64,
    /// UTF-8 bytes of source text.
    pub source_bytes: u64,
    /// Path of the token file within the store, with `/`.
    pub file: String,
    /// Size of that file in bytes.
    pub file_bytes: u64,
    /// BLAKE3 of that file, in hex.
    pub blake3: String,
}

/// One file that a store was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    /// Name of the source, a path or the name of a compiled-in file.
    pub name: String,
    /// BLAKE3 of the file as it lay there, in hex.
    pub blake3: String,
    /// What became of each of its lines.
    pub ledger: Ledger,
    /// Tokens written, document marks included.
    pub num_tokens: u64,
}

/// The file itself: the manifest and its checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    /// BLAKE3 of `manifest` as compact JSON.
    blake3: String,
}

/// Read before all else, since another version may have other fields.
#[derive(Deserialize)]
struct Versioned {
    manifest: Version,
}

#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

impl Manifest {
    /// The bytes of `store.json`.
    pub(super) fn seal(&self, path: &Path) -> Result<Vec<u8>> {
        let blake3 = self.checksum(path)?;
        let sealed = Sealed { manifest: self.clone(), blake3 };
        let mut bytes = serde_json::to_vec_pretty(&sealed).map_err(unreadable(path))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the bytes of `store.json`; any byte that is not as we write it is an error.
    pub(super) fn unseal(path: &Path, bytes: &[u8]) -> Result<Self> {
        let versioned: Versioned = serde_json::from_slice(bytes).map_err(unreadable(path))?;
        let found = versioned.manifest.format_version;
        if found != FORMAT_VERSION {
            let path = path.to_owned();
            return Err(DataError::StoreVersion { path, found, needed: FORMAT_VERSION });
        }
        let Sealed { manifest, blake3: needed } =
            serde_json::from_slice(bytes).map_err(unreadable(path))?;
        let found = manifest.checksum(path)?;
        if found != needed {
            return Err(DataError::Checksum { path: path.to_owned(), found, needed });
        }
        if manifest.seal(path)? != bytes {
            let reason = "its white space was altered".to_owned();
            return Err(DataError::Manifest { path: path.to_owned(), reason });
        }
        Ok(manifest)
    }

    fn checksum(&self, path: &Path) -> Result<String> {
        let compact = serde_json::to_vec(self).map_err(unreadable(path))?;
        Ok(blake3::hash(&compact).to_hex().to_string())
    }

    /// Tokens of all cells.
    pub fn num_tokens(&self) -> u64 {
        self.cells.iter().map(|cell| cell.num_tokens).sum()
    }

    /// Documents of all cells.
    pub fn num_documents(&self) -> u64 {
        self.cells.iter().map(|cell| cell.num_documents).sum()
    }

    /// UTF-8 bytes of source text of all cells.
    pub fn source_bytes(&self) -> u64 {
        self.cells.iter().map(|cell| cell.source_bytes).sum()
    }
}

fn unreadable(path: &Path) -> impl FnOnce(serde_json::Error) -> DataError {
    move |error| DataError::Manifest { path: path.to_owned(), reason: error.to_string() }
}
