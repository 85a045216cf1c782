//! The manifest: what a store is made of, and the checksum of every file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{format::FORMAT_VERSION, index::Span};
use crate::{DataError, DocumentMarks, Ledger, Result, Tokenizer};

/// Name of the manifest within a store.
pub const MANIFEST_FILE: &str = "store.json";

/// Name of the tokenizer within a store.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// Name of the list of documents left out for a reason that may surprise; absent where there are
/// none.
pub const QUARANTINE_FILE: &str = "quarantine.jsonl";

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
    /// Digests of the judges and of the choice of cells that documents went through, in order.
    pub rules: Vec<String>,
    /// Cells in the order of their names.
    pub cells: Vec<CellEntry>,
    /// Files that were read, in their order.
    pub sources: Vec<SourceEntry>,
    /// Documents with a line in [`QUARANTINE_FILE`].
    pub quarantined: u64,
    /// What lies beside the cells.
    pub files: Vec<FileEntry>,
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

    /// Checks that the ids of a document are below the vocabulary.
    pub(crate) fn check_ids(&self, document: &str, tokens: &[u32]) -> Result<()> {
        let vocab_size = self.vocab_size;
        match tokens.iter().find(|&&token| token >= vocab_size) {
            Some(&id) => Err(DataError::TokenId { document: document.to_owned(), id, vocab_size }),
            None => Ok(()),
        }
    }
}

/// One cell of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEntry {
    /// `<domain>/q<quality>`, or `c07q3`; also its folder.
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
    /// Its token files, read one behind the other.
    pub shards: Vec<ShardEntry>,
}

/// One token file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Path within the store, with `/`.
    pub file: String,
    /// Size in bytes.
    pub file_bytes: u64,
    /// BLAKE3 of the file, in hex.
    pub blake3: String,
    /// Tokens, document marks included.
    pub num_tokens: u64,
    /// Documents.
    pub num_documents: u64,
    /// UTF-8 bytes of source text.
    pub source_bytes: u64,
    /// Where its documents were read, in their order.
    pub spans: Vec<Span>,
}

/// A file of the store that is no token file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name within the store.
    pub file: String,
    /// Size in bytes.
    pub file_bytes: u64,
    /// BLAKE3 of the file, in hex.
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

    /// The account of every file as a table, and of all: documents in, left out by reason, kept.
    pub fn account(&self) -> String {
        super::account::table(&self.sources)
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

/// Reads the bytes of a file and compares them with its entry.
pub(super) fn read_file(store: &Path, entry: &FileEntry) -> Result<Vec<u8>> {
    let path = store.join(&entry.file);
    let bytes = std::fs::read(&path).map_err(DataError::io("read", path.as_path()))?;
    let (found, needed) = (bytes.len() as u64, entry.file_bytes);
    if found != needed {
        return Err(DataError::FileSize { path, found, needed });
    }
    let found = blake3::hash(&bytes).to_hex().to_string();
    if found != entry.blake3 {
        return Err(DataError::Checksum { path, found, needed: entry.blake3.clone() });
    }
    Ok(bytes)
}

fn unreadable(path: &Path) -> impl FnOnce(serde_json::Error) -> DataError {
    move |error| DataError::Manifest { path: path.to_owned(), reason: error.to_string() }
}
