//! Names of what goes into a store.

use rayon::prelude::*;

use super::Build;
use crate::{DocumentMarks, FORMAT_VERSION, ReadOptions, Result, Source};

/// Of all that decides a store's contents.
pub(super) struct Digests {
    /// Of everything together.
    pub(super) build: String,
    /// Of the files, in order.
    pub(super) sources: Vec<String>,
}

impl Build<'_> {
    /// Digests of the judges and of what chooses cells, in the order of their work.
    pub(super) fn rules(&self) -> Vec<String> {
        let judges = self.judges.iter().map(|judge| judge.digest());
        judges.chain(self.assign.iter().map(|assign| assign.digest())).collect()
    }

    pub(super) fn digests(&self) -> Result<Digests> {
        // Collected first, so that the error is that of the first file.
        let sources: Vec<Result<String>> = self.sources.par_iter().map(Source::digest).collect();
        let sources = sources.into_iter().collect::<Result<Vec<String>>>()?;
        let mut hasher = blake3::Hasher::new();
        let DocumentMarks { bos, eos } = self.marks;
        hasher.update(&FORMAT_VERSION.to_le_bytes());
        hasher.update(self.tokenizer.digest().as_bytes());
        hasher.update(&self.tokenizer.bos_id().to_le_bytes());
        hasher.update(&self.tokenizer.eos_id().to_le_bytes());
        hasher.update(&[u8::from(bos), u8::from(eos)]);
        hasher.update(&self.shards.tokens.to_le_bytes());
        hasher.update(&self.shards.documents.to_le_bytes());
        let ReadOptions { strict, limits, checks_domain } = self.reading;
        hasher.update(&limits.max_bytes.to_le_bytes());
        hasher.update(&limits.min_characters.to_le_bytes());
        hasher.update(&[u8::from(strict), u8::from(checks_domain)]);
        for rule in self.rules() {
            hasher.update(rule.as_bytes());
        }
        for (source, digest) in self.sources.iter().zip(&sources) {
            // The name is content too: it is part of default document ids.
            hasher.update(&(source.name().len() as u64).to_le_bytes());
            hasher.update(source.name().as_bytes());
            hasher.update(digest.as_bytes());
            hasher.update(source.meaning_digest().unwrap_or_default().as_bytes());
        }
        Ok(Digests { build: hasher.finalize().to_hex().to_string(), sources })
    }
}
