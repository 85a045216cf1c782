//! A data recipe: all that decides what is in a store, as a file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Build, SourceConfig, sources::find_sources};
use crate::{DataError, MarksConfig, Result, ShardLimits, Tokenizer};

/// What a store is built of, as TOML. Paths are relative to the recipe's folder.
///
/// ```
/// let recipe: fulmar_data::BuildRecipe = toml::from_str(
///     r#"
///     tokenizer = "tokenizer.json"
///     [marks]
///     eos_token = "</s>"
///     bos_token = "<s>"
///     [[sources]]
///     name = "books"
///     paths = ["books/*.jsonl.zst"]
///     "#,
/// )?;
/// assert!(recipe.marks.bos && recipe.marks.eos);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BuildRecipe {
    /// A `tokenizer.json`; that of the shipped corpus when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The vocabulary of the model to be trained: an id at or above it is an error with the
    /// document's id. That of the tokenizer when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab_size: Option<u32>,
    /// Marks around each document.
    pub marks: MarksConfig,
    /// Where token files end.
    pub shards: ShardLimits,
    /// What is read, in this order.
    pub sources: Vec<SourceConfig>,
}

impl BuildRecipe {
    /// Reads a recipe, and says the folder that its paths are relative to.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::RecipeFile`] for what is no recipe, [`DataError::Recipe`] for
    /// one without sources.
    pub fn from_file(path: impl AsRef<Path>) -> Result<(Self, PathBuf)> {
        let path = path.as_ref();
        let text =
            std::fs::read_to_string(path).map_err(DataError::io("read data recipe", path))?;
        let recipe: Self = toml::from_str(&text).map_err(|source| DataError::RecipeFile {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        if recipe.sources.is_empty() {
            return Err(DataError::Recipe {
                field: "sources".to_owned(),
                found: "empty".to_owned(),
                needed: "at least one".to_owned(),
            });
        }
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((recipe, folder.unwrap_or(Path::new(".")).to_owned()))
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// Those of [`Tokenizer::from_file`].
    pub fn open_tokenizer(&self, folder: &Path) -> Result<Tokenizer> {
        match &self.tokenizer {
            Some(path) => Tokenizer::from_file_with(folder.join(path), &self.marks.names()),
            None => Tokenizer::shipped(),
        }
    }

    /// The build, with all that the recipe says; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// [`DataError::Recipe`] for a source without files.
    pub fn build<'a>(&self, folder: &Path, tokenizer: &'a Tokenizer) -> Result<Build<'a>> {
        let sources = find_sources(&self.sources, folder)?;
        let mut build = Build::new(sources, tokenizer, self.marks.marks())
            .shards(self.shards)
            .reading(self.reading());
        if let Some(vocab_size) = self.vocab_size {
            build = build.vocab_size(vocab_size);
        }
        Ok(build)
    }

    /// Digest of how the sources are read.
    fn reading(&self) -> String {
        // A recipe came from TOML, whose values all have a JSON form.
        let json = serde_json::to_vec(&self.sources).expect("sources as JSON");
        blake3::hash(&json).to_hex().to_string()
    }
}
