//! One source of a data recipe: which files, and what their fields mean.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{Deserialize, Serialize};

use super::format::Format;
use crate::{CellKey, DataError, Reason, Result};

/// Files that are read alike.
///
/// ```
/// let source: fulmar_data::SourceConfig = toml::from_str(
///     r#"
///     name = "books"
///     paths = ["books/**/*.jsonl.zst"]
///     domain = "books"
///     quality = 3
///     exempt = ["near_duplicate"]
///     require = { language = ["en"] }
///     [columns]
///     text = "content.body"
///     id = "doc_id"
///     "#,
/// )?;
/// assert_eq!(source.columns.text.as_deref(), Some("content.body"));
/// source.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What the source is called in reports; no two of a recipe are called alike.
    pub name: String,
    /// Globs (`*`, `?`, `[a-z]`, `**` for folders at any depth), files, or folders, which stand for
    /// all files below them. Names that start with `.` are matched by a literal `.` alone.
    pub paths: Vec<String>,
    /// Told from each file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Domain of all documents, instead of a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Quality level of all documents, instead of a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u32>,
    /// What its documents are not left out for: `duplicate`, `near_duplicate`, `contaminated`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<Reason>,
    /// Columns, and the values of which each must have one; other records are left out under
    /// [`Reason::Rule`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub require: BTreeMap<String, Vec<Scalar>>,
    /// Which column is what.
    #[serde(default, skip_serializing_if = "ColumnsConfig::is_default")]
    pub columns: ColumnsConfig,
}

/// Names of columns. A dotted path such as `content.body` reaches into nested objects or structs.
///
/// A column that is named here must be in every record. Where none is named, `text`, `id`, `domain`,
/// `quality` and `source` are taken, all but `text` only where they are there; `score` and
/// `embedding` are read when they are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColumnsConfig {
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The document's name: a string or a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The domain: a string or a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The quality level: a whole number from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<String>,
    /// Where the document comes from: a string or a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A score of its quality: a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// An embedding of its text: a list of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<String>,
}

impl ColumnsConfig {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A value that a column may be required to have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number; equal to a fractional one of the same value.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A string.
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

/// What a source may be exempt from: what is found by comparing documents.
const EXEMPTIONS: [Reason; 3] = [Reason::Duplicate, Reason::NearDuplicate, Reason::Contaminated];

impl SourceConfig {
    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`DataError::SourceField`] with the field and the rule.
    pub fn validate(&self) -> Result<()> {
        let refuse = |field: &str, found: String, needed: &'static str| {
            let (name, field) = (self.name.clone(), field.to_owned());
            Err(DataError::SourceField { name, field, found, needed })
        };
        if self.name.is_empty() {
            return refuse("name", "empty".to_owned(), "a name");
        }
        if self.paths.is_empty() {
            return refuse("paths", "empty".to_owned(), "at least one glob, file or folder");
        }
        if let Some(domain) = &self.domain {
            if !(CellKey { domain: domain.clone(), quality: 0 }).has_valid_domain() {
                return refuse("domain", format!("{domain:?}"), CellKey::DOMAIN_RULE);
            }
            if let Some(column) = &self.columns.domain {
                return refuse("columns.domain", format!("{column:?}"), "no constant beside it");
            }
        }
        if let (Some(_), Some(column)) = (self.quality, &self.columns.quality) {
            return refuse("columns.quality", format!("{column:?}"), "no constant beside it");
        }
        if let Some(reason) = self.exempt.iter().find(|reason| !EXEMPTIONS.contains(reason)) {
            let needed = "`duplicate`, `near_duplicate` or `contaminated`";
            return refuse("exempt", format!("`{reason}`"), needed);
        }
        if let Some((column, _)) = self.require.iter().find(|(_, values)| values.is_empty()) {
            return refuse(&format!("require.{column}"), "empty".to_owned(), "at least one value");
        }
        if self.format == Some(Format::Text) && self.names_columns() {
            return refuse("format", "`text`".to_owned(), "`columns` and `require` absent with it");
        }
        if let Some((outer, inner)) = self.nested_columns() {
            let found = format!("`{outer}` beside `{inner}`");
            return refuse("columns", found, "no column within another");
        }
        Ok(())
    }

    /// The format of a file of it that begins with `head`.
    pub(crate) fn format_of(&self, file: &str, head: &[u8]) -> Format {
        self.format.unwrap_or_else(|| Format::detect(Path::new(file), head))
    }

    /// Whether it says anything about fields, which a text file does not have.
    pub(crate) fn names_columns(&self) -> bool {
        !self.columns.is_default() || !self.require.is_empty()
    }

    fn nested_columns(&self) -> Option<(&str, &str)> {
        let ColumnsConfig { text, id, domain, quality, source, score, embedding } = &self.columns;
        let named = [text, id, domain, quality, source, score, embedding];
        let named = named.into_iter().flatten().chain(self.require.keys());
        let named: Vec<&str> = named.map(String::as_str).collect();
        let within = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
        };
        named.iter().find_map(|outer| {
            named.iter().find(|inner| within(outer, inner)).map(|inner| (*outer, *inner))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_contradicts_itself_is_refused_by_field() {
        let parts = |extra: &str| format!("name = \"books\"\npaths = [\"*.jsonl\"]\n{extra}");
        let cases = [
            ("domain = \"a/b\"", "`domain` is \"a/b\""),
            ("domain = \"a\"\ncolumns.domain = \"topic\"", "`columns.domain` is \"topic\""),
            ("quality = 1\ncolumns.quality = \"level\"", "no constant beside it"),
            ("exempt = [\"empty\"]", "`exempt` is `empty`"),
            ("require = { language = [] }", "`require.language` is empty"),
            ("format = \"text\"\ncolumns.text = \"body\"", "`format` is `text`"),
            ("columns.text = \"meta.body\"\ncolumns.id = \"meta\"", "`meta` beside `meta.body`"),
        ];
        for (extra, said) in cases {
            let config: SourceConfig = toml::from_str(&parts(extra)).expect(extra);
            let error = config.validate().expect_err(extra).to_string();
            assert!(error.contains("source `books`") && error.contains(said), "{error}");
        }
        let good: SourceConfig = toml::from_str(&parts("require = { a = [1, \"x\", true] }"))
            .expect("values of several types");
        good.validate().expect("a good source");
        assert!(toml::from_str::<SourceConfig>(&parts("formt = \"text\"")).is_err());
    }
}
