//! Writes the token files of one cell, one behind the other.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    index::NewDocument,
    manifest::{CellEntry, ShardEntry},
    shard_writer::ShardWriter,
};
use crate::{CellKey, DataError, Result};

/// Where a shard ends: before the document that would be one too many, or with which it would have
/// too many tokens. A longer document has a shard of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShardLimits {
    /// Tokens of a shard; default 2^28, a file of half a GiB or of one.
    pub tokens: u64,
    /// Documents of a shard; default 2^20, an index of 32 MiB beside the ids. It is held in memory
    /// while the shard is written.
    pub documents: u64,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self { tokens: 1 << 28, documents: 1 << 20 }
    }
}

pub(super) struct CellWriter {
    key: CellKey,
    work_dir: PathBuf,
    token_bytes: u32,
    limits: ShardLimits,
    finished: Vec<ShardEntry>,
    current: ShardWriter,
}

impl CellWriter {
    /// Starts the first file of a cell below `work_dir`.
    pub(super) fn create(
        work_dir: &Path,
        key: &CellKey,
        token_bytes: u32,
        limits: ShardLimits,
    ) -> Result<Self> {
        let folder = work_dir.join(key.to_string());
        fs::create_dir_all(&folder).map_err(DataError::io("create folder", folder))?;
        let current = shard(work_dir, key, 0, token_bytes)?;
        let (key, work_dir, finished) = (key.clone(), work_dir.to_owned(), Vec::new());
        Ok(Self { key, work_dir, token_bytes, limits, finished, current })
    }

    pub(super) fn append(&mut self, document: &NewDocument<'_>) -> Result<()> {
        let index = self.current.index();
        let tokens = index.num_tokens() + document.tokens.len() as u64;
        let full = index.num_documents() >= self.limits.documents || tokens > self.limits.tokens;
        if full && index.num_documents() > 0 {
            let number = self.finished.len() + 1;
            let next = shard(&self.work_dir, &self.key, number, self.token_bytes)?;
            self.finished.push(std::mem::replace(&mut self.current, next).finish()?);
        }
        self.current.append(document)
    }

    pub(super) fn finish(mut self) -> Result<CellEntry> {
        self.finished.push(self.current.finish()?);
        let shards = self.finished;
        Ok(CellEntry {
            name: self.key.to_string(),
            domain: self.key.domain,
            quality: self.key.quality,
            num_tokens: shards.iter().map(|shard| shard.num_tokens).sum(),
            num_documents: shards.iter().map(|shard| shard.num_documents).sum(),
            source_bytes: shards.iter().map(|shard| shard.source_bytes).sum(),
            shards,
        })
    }
}

fn shard(work_dir: &Path, key: &CellKey, number: usize, token_bytes: u32) -> Result<ShardWriter> {
    let file = format!("{key}/{number:05}.tokens");
    ShardWriter::create(work_dir.join(&file), file, token_bytes)
}
