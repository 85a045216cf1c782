//! The files of a recipe.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{DataError, Result, Source};

/// Files that are read alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What the source is called in reports.
    pub name: String,
    /// Globs, relative to the recipe's folder.
    pub paths: Vec<String>,
}

/// The files of a recipe's sources, in the order of the recipe and of their names.
///
/// # Errors
/// [`DataError::Recipe`] for what is no glob, or matches no file; [`DataError::Io`].
pub fn find_sources(configs: &[SourceConfig], base: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for (place, config) in configs.iter().enumerate() {
        let refused = |found: String, needed: &str| DataError::Recipe {
            field: format!("sources[{place}].paths"),
            found,
            needed: needed.to_owned(),
        };
        for pattern in &config.paths {
            let whole = base.join(pattern);
            let matches = glob::glob(&whole.display().to_string())
                .map_err(|error| refused(format!("{pattern:?}"), error.msg))?;
            let mut paths = Vec::<PathBuf>::new();
            for path in matches {
                let path = path.map_err(|error| {
                    DataError::io("look into", error.path().to_owned())(error.into())
                })?;
                if path.is_file() {
                    paths.push(path);
                }
            }
            if paths.is_empty() {
                return Err(refused(format!("{pattern:?}"), "a glob that matches a file"));
            }
            paths.sort();
            sources.extend(paths.iter().map(Source::file));
        }
    }
    Ok(sources)
}
