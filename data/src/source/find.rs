//! Globs → sources, in an order that depends on names alone.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use glob::{MatchOptions, Pattern};

use super::{Files, Source, TextFile, config::SourceConfig, format::Format, raw::Contents};
use crate::{DataError, Result};

/// The files of a recipe's sources; relative paths start at the folder `base`.
///
/// Sources come in the order of the recipe, the files of each in the order of their names (bytes of
/// UTF-8). A file is known as the recipe has it: `books/a.jsonl` whatever `base` is, so that its
/// records keep their names when the folder moves or the program starts elsewhere. The text files of a
/// folder are one source. Symbolic links are followed, to folders too; one that leads back to a folder
/// above it makes files match twice.
///
/// # Errors
/// [`DataError::SourceField`], [`DataError::SourceNames`], [`DataError::NoMatch`] for a path that
/// matches no file, [`DataError::MatchedTwice`] for a file that is matched by two, however it is
/// called, [`DataError::FileName`], [`DataError::Io`].
pub fn find_sources(configs: &[SourceConfig], base: impl AsRef<Path>) -> Result<Vec<Source>> {
    // Without `.`, which globbing leaves out too.
    let parts = base.as_ref().components().filter(|part| *part != Component::CurDir);
    let mut finder = Finder { base: parts.collect(), seen: HashMap::new() };
    let mut sources = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        config.validate()?;
        if configs[..index].iter().any(|other| other.name == config.name) {
            return Err(DataError::SourceNames { name: config.name.clone() });
        }
        sources.extend(finder.sources_of(config)?);
    }
    Ok(sources)
}

/// A file that a path of a recipe stands for.
struct Found {
    path: PathBuf,
    /// The folder that the path names before its first special character.
    root: String,
}

struct Finder {
    base: PathBuf,
    /// Files by their true path, with the source and the path that found them.
    seen: HashMap<PathBuf, String>,
}

impl Finder {
    fn sources_of(&mut self, config: &SourceConfig) -> Result<Vec<Source>> {
        let mut found = BTreeMap::new();
        for pattern in &config.paths {
            self.expand(config, pattern, &mut found)?;
        }
        let config = Arc::new(config.clone());
        let (mut sources, mut texts) = (Vec::new(), BTreeMap::<String, Vec<TextFile>>::new());
        for (name, Found { path, root }) in found {
            let contents = Contents::File(path);
            if config.format_of(&name, &contents.head(&name)?) != Format::Text {
                let files = Files::One(contents);
                sources.push(Source { name, files, config: Arc::clone(&config) });
                continue;
            }
            if config.names_columns() {
                return Err(DataError::TextColumns { name: config.name.clone(), file: name });
            }
            let id = name.strip_prefix(&root).unwrap_or(&name).trim_start_matches('/').to_owned();
            texts.entry(root).or_default().push(TextFile { name: name.into(), id, contents });
        }
        sources.extend(texts.into_iter().map(|(root, files)| {
            let name = if root.is_empty() { ".".to_owned() } else { root };
            Source { name, files: Files::Texts(files.into()), config: Arc::clone(&config) }
        }));
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }

    /// Adds the files that one path stands for, by name.
    fn expand(
        &mut self,
        config: &SourceConfig,
        pattern: &str,
        found: &mut BTreeMap<String, Found>,
    ) -> Result<()> {
        // A folder stands for the files below it, and a file for itself, whatever is in its name.
        let (pattern_there, root) = if self.base.join(pattern).is_dir() {
            let folder = pattern.trim_end_matches('/');
            (format!("{}/**/*", Pattern::escape(folder)), folder.to_owned())
        } else if self.base.join(pattern).is_file() {
            (Pattern::escape(pattern), folder_of(pattern))
        } else {
            (pattern.to_owned(), folder_of(literal_start(pattern)))
        };
        let root = named(Path::new(&root)).unwrap_or(root);
        let base = Pattern::escape(&self.base.display().to_string());
        // `join` has an absolute pattern replace the base.
        let whole = Path::new(&base).join(&pattern_there).display().to_string();
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::default() };
        let paths = glob::glob_with(&whole, options).map_err(|error| DataError::SourceField {
            name: config.name.clone(),
            field: "paths".to_owned(),
            found: format!("{pattern:?} ({})", error.msg),
            needed: "a glob",
        })?;
        let mut matched = false;
        for path in paths {
            let path = path.map_err(|error| {
                let path = error.path().to_owned();
                DataError::Io { action: "look into", path, source: error.into() }
            })?;
            if !path.is_file() {
                continue;
            }
            matched = true;
            let name = self.name_of(&path, pattern)?;
            self.see(&path, config, pattern, &name)?;
            found.insert(name, Found { path, root: root.clone() });
        }
        if !matched {
            let (name, pattern) = (config.name.clone(), pattern.to_owned());
            return Err(DataError::NoMatch { name, pattern, folder: self.base.clone() });
        }
        Ok(())
    }

    /// What a file is called: relative to the base where its path is.
    fn name_of(&self, path: &Path, pattern: &str) -> Result<String> {
        let short = if Path::new(pattern).is_absolute() {
            path
        } else {
            path.strip_prefix(&self.base).unwrap_or(path)
        };
        named(short).ok_or_else(|| DataError::FileName { path: path.to_owned() })
    }

    /// Notes who found a file; two must not.
    fn see(&mut self, path: &Path, config: &SourceConfig, pattern: &str, name: &str) -> Result<()> {
        let true_path = path.canonicalize().map_err(DataError::io("look at", path))?;
        let second = format!("`{pattern}` of source `{}`", config.name);
        match self.seen.insert(true_path, second.clone()) {
            Some(first) => Err(DataError::MatchedTwice { file: name.to_owned(), first, second }),
            None => Ok(()),
        }
    }
}

/// A path with `/` between its parts on every system, without `.`; none if it is no UTF-8.
fn named(path: &Path) -> Option<String> {
    let mut name = String::new();
    for part in path.components() {
        match part {
            Component::CurDir => continue,
            Component::RootDir => name.push('/'),
            _ => {
                if !name.is_empty() && !name.ends_with('/') {
                    name.push('/');
                }
                name.push_str(part.as_os_str().to_str()?);
            }
        }
    }
    Some(name)
}

/// A pattern up to its first special character.
fn literal_start(pattern: &str) -> &str {
    &pattern[..pattern.find(['*', '?', '[']).unwrap_or(pattern.len())]
}

/// A path up to its last `/`.
fn folder_of(path: &str) -> String {
    match path.rfind('/') {
        Some(0) => "/".to_owned(),
        Some(end) => path[..end].to_owned(),
        None => String::new(),
    }
}
