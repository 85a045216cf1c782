//! Documents → token store, without a recipe.

use std::path::Path;

use crate::{Build, DocumentMarks, Result, Source, Store, Tokenizer};

/// Where the store of [`build_or_open`] came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOrigin {
    /// Tokenised now.
    Built,
    /// Found in the cache.
    Opened,
}

/// Tokenises sources into a store at `out_dir`: a [`Build`] with nothing but sources.
///
/// # Errors
/// Those of [`Build::run`].
pub fn build_store(
    sources: &[Source],
    tokenizer: &Tokenizer,
    marks: DocumentMarks,
    out_dir: impl AsRef<Path>,
) -> Result<Store> {
    Ok(Build::new(sources.to_vec(), tokenizer, marks).run(out_dir)?.store)
}

/// Opens the store of these sources, tokenizer and marks in a cache folder, or builds it there.
///
/// Each combination has a folder of its own, named by its digest: changed sources never overwrite a
/// store that another run reads. Two builders at once are safe; the second opens what the first
/// published.
///
/// # Errors
/// As [`Build::run`] and [`Store::open`]: a damaged store in the cache is reported, not replaced.
pub fn build_or_open(
    sources: &[Source],
    tokenizer: &Tokenizer,
    marks: DocumentMarks,
    cache_dir: impl AsRef<Path>,
) -> Result<(Store, StoreOrigin)> {
    let built = Build::new(sources.to_vec(), tokenizer, marks).run_in_cache(cache_dir)?;
    let (path, tokens) = (built.store.path().display(), built.store.manifest().num_tokens());
    if built.opened {
        tracing::info!(%path, tokens, "opened store");
        return Ok((built.store, StoreOrigin::Opened));
    }
    Ok((built.store, StoreOrigin::Built))
}
