//! All that a data recipe reads.

use std::path::Path;

use super::{Source, SourceConfig, find_sources};
use crate::{BuildRecipe, ReadOptions, Result};

/// Sources, and how they are read.
#[derive(Clone, Debug)]
pub struct Pool {
    /// In their order.
    pub sources: Vec<Source>,
    /// Limits, and what becomes of bad documents.
    pub options: ReadOptions,
}

impl Pool {
    /// What a data recipe reads; relative paths start at its folder.
    ///
    /// # Errors
    /// Those of [`BuildRecipe::from_file`] and [`find_sources`].
    pub fn of_recipe(path: impl AsRef<Path>) -> Result<Self> {
        let (recipe, folder) = BuildRecipe::from_file(path)?;
        recipe.pool(&folder)
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
