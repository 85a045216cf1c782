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
    let build = Build::new(sources.to_vec(), tokenizer, marks);
    let path = cache_dir.as_ref().join(&build.digest()?[..16]);
    if !path.exists() {
        let built = build.run(&path)?;
        let origin = if built.opened { StoreOrigin::Opened } else { StoreOrigin::Built };
        return Ok((built.store, origin));
    }
    let store = Store::open(&path)?;
    tracing::info!(path = %path.display(), tokens = store.manifest().num_tokens(), "opened store");
    Ok((store, StoreOrigin::Opened))
}
