//! All that a data recipe reads.

use std::{fs, path::Path};

use serde::Deserialize;

use super::{Source, SourceConfig, find_sources};
use crate::{DataError, Limits, ReadOptions, Result};

/// Sources, and how they are read.
#[derive(Clone, Debug)]
pub struct Pool {
    /// In their order.
    pub sources: Vec<Source>,
    /// Limits, and what becomes of bad documents.
    pub options: ReadOptions,
}

/// The parts of a data recipe that reading depends on; the builder knows the others.
#[derive(Deserialize)]
struct ReadingPart {
    #[serde(default)]
    sources: Vec<SourceConfig>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    cells: toml::Table,
}

impl Pool {
    /// What a data recipe reads; relative paths start at its folder.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Recipe`] when it is not one or has no source; those of
    /// [`find_sources`].
    pub fn of_recipe(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(DataError::io("read recipe", path))?;
        let refused = |reason: String| DataError::Recipe { path: path.to_owned(), reason };
        let part: ReadingPart =
            toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if part.sources.is_empty() {
            return Err(refused("no `[[sources]]`; need at least one".to_owned()));
        }
        let base = path.parent().unwrap_or(Path::new(""));
        let sources = find_sources(&part.sources, base)?;
        let checks_domain = !part.cells.contains_key("clusters");
        let options = ReadOptions { strict: part.strict, limits: part.limits, checks_domain };
        Ok(Self { sources, options })
    }

    /// Plain files, folders or globs, read leniently with the default limits and names of fields.
    ///
    /// # Errors
    /// Those of [`find_sources`].
    pub fn of_files(paths: &[String]) -> Result<Self> {
        let name = "files".to_owned();
        let config = SourceConfig { name, paths: paths.to_vec(), ..SourceConfig::default() };
        let sources = find_sources(&[config], "")?;
        Ok(Self { sources, options: ReadOptions::default() })
    }
}
