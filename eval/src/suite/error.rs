//! Why a suite cannot be evaluated.

use std::path::PathBuf;

use fulmar_data::DataError;
use thiserror::Error;

/// What is wrong with a suite, or with a file of document sums.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// A field that breaks a rule.
    #[error("suite `{suite}`: field `{field}` is {found}, needed {needed}")]
    Field {
        /// Name of the suite.
        suite: String,
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The rule.
        needed: &'static str,
    },
    /// A folder in which no tag is.
    #[error(
        "suite `{suite}`: {} holds neither folders nor files of JSON lines or Parquet, needed one a \
         tag", folder.display()
    )]
    NoTags {
        /// Name of the suite.
        suite: String,
        /// The folder.
        folder: PathBuf,
    },
    /// Two files or folders of one tag.
    #[error("suite `{suite}`: tag `{tag}` is both `{first}` and `{second}`, needed one of them")]
    TagTwice {
        /// Name of the suite.
        suite: String,
        /// The tag.
        tag: String,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// Tags that are not those of the published suite.
    #[error(
        "suite `{suite}` {}, needed the {needed} published tags; give other sets of tags another name",
        differences(missing, unknown)
    )]
    Tags {
        /// Name of the suite.
        suite: String,
        /// Published tags that are not there.
        missing: Vec<String>,
        /// Tags there that are not published.
        unknown: Vec<String>,
        /// How many tags were published.
        needed: usize,
    },
    /// A tag of which nothing could be scored.
    #[error("suite `{suite}`: tag `{tag}` has no document, needed at least one")]
    NoDocuments {
        /// Name of the suite.
        suite: String,
        /// The tag.
        tag: String,
    },
    /// A folder or file that cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Files, tokenizer or store.
    #[error("suite `{suite}`")]
    Data {
        /// Name of the suite.
        suite: String,
        /// What is wrong with them.
        source: DataError,
    },
    /// A line of a file of document sums.
    #[error("line {line} of {} is no sum of a document", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// Where and why.
        source: serde_json::Error,
    },
}

impl SuiteError {
    pub(super) fn data(suite: &str) -> impl FnOnce(DataError) -> Self {
        let suite = suite.to_owned();
        move |source| Self::Data { suite, source }
    }
}

fn differences(missing: &[String], unknown: &[String]) -> String {
    let list = |what: &str, tags: &[String]| {
        (!tags.is_empty()).then(|| format!("{what} `{}`", tags.join("`, `")))
    };
    let parts = [list("lacks", missing), list("has besides", unknown)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
