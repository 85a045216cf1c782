//! A data recipe: all that decides what is in a store, as a file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Build;
use crate::{
    DataError, Limits, MarksConfig, Pool, ReadOptions, Result, ShardLimits, Source, SourceConfig,
    Tokenizer,
    cells::{Cells, ClusterModel, QualityModel},
    clean::{BoundDecisions, Decisions},
    find_sources,
};

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
/// assert!(recipe.marks.bos && recipe.marks.eos && !recipe.strict);
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
    /// Whether the first record that is no document is an error, instead of going to the store's
    /// quarantine file.
    pub strict: bool,
    /// What a cleaning pass has decided: a file of `train data clean`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<PathBuf>,
    /// Marks around each document.
    pub marks: MarksConfig,
    /// Which lengths of a text are taken.
    pub limits: Limits,
    /// What chooses cells, instead of the documents' own domain and quality.
    pub cells: CellsConfig,
    /// Where token files end.
    pub shards: ShardLimits,
    /// What is read, in this order.
    pub sources: Vec<SourceConfig>,
}

/// Model files that choose the cells of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CellsConfig {
    /// Of `train data cluster`: the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<PathBuf>,
    /// Of `train data quality`: the quality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<PathBuf>,
}

impl CellsConfig {
    fn open(&self, folder: &Path) -> Result<Cells> {
        let path = |file: &Option<PathBuf>| file.as_ref().map(|file| folder.join(file));
        Ok(Cells {
            clusters: path(&self.clusters).map(ClusterModel::read).transpose()?,
            quality: path(&self.quality).map(QualityModel::read).transpose()?,
        })
    }
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

    /// What it reads, and how; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// Those of [`find_sources`].
    pub fn pool(&self, folder: &Path) -> Result<Pool> {
        let options = ReadOptions {
            strict: self.strict,
            limits: self.limits,
            checks_domain: self.cells.clusters.is_none(),
        };
        Ok(Pool { sources: find_sources(&self.sources, folder)?, options })
    }

    /// The build, with all that the recipe says; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// Those of [`find_sources`]; [`DataError::Decisions`] and [`DataError::DecisionsSource`] for
    /// decisions that are not about these files; [`DataError::ModelFile`] for model files.
    pub fn build<'a>(&self, folder: &Path, tokenizer: &'a Tokenizer) -> Result<Build<'a>> {
        let Pool { sources, options } = self.pool(folder)?;
        let decisions = self.decisions(folder, &sources)?;
        let mut build =
            Build::new(sources, tokenizer, self.marks.marks()).shards(self.shards).reading(options);
        if let Some(vocab_size) = self.vocab_size {
            build = build.vocab_size(vocab_size);
        }
        if let Some(decisions) = decisions {
            build = build.judge(Box::new(decisions));
        }
        if self.cells != CellsConfig::default() {
            build = build.assign(Box::new(self.cells.open(folder)?));
        }
        Ok(build)
    }

    fn decisions(&self, folder: &Path, sources: &[Source]) -> Result<Option<BoundDecisions>> {
        let Some(path) = &self.decisions else { return Ok(None) };
        let mut files = Vec::new();
        for source in sources {
            files.extend(source.identities(&self.limits)?);
        }
        Decisions::read(folder.join(path))?.bind(&files).map(Some)
    }
}
