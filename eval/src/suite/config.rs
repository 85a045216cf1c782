//! Which files a suite is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fulmar_data::{ColumnsConfig, ReadOptions, SourceConfig};
use serde::{Deserialize, Serialize};

use super::error::SuiteError;
use super::published::Published;
use super::{HELDOUT, folder};

/// A suite to evaluate: a folder with a corpus a tag, or lists of files by tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteConfig {
    /// What it is called in metrics. `paloma` and `uncheatable` are the published suites and must have
    /// their tags.
    pub name: String,
    /// A file or a folder a tag: `c4_en.jsonl.zst` and `c4_en/` are both the tag `c4_en`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Files, folders or globs by tag, instead of `folder`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Vec<String>>,
    /// Which column is the text, and which the id; `text` and `id` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<ColumnsConfig>,
}

impl SuiteConfig {
    /// A suite of a folder.
    pub fn of_folder(name: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), folder: Some(folder.into()), ..Self::default() }
    }

    /// Bad records are left out and counted, texts of any length are taken.
    pub const READING: ReadOptions = ReadOptions { strict: false, ..ReadOptions::STRICT };

    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`SuiteError::Field`] with the field and the rule.
    pub fn validate(&self) -> Result<(), SuiteError> {
        let refuse = |field: &'static str, found: &str, needed: &'static str| {
            let (suite, found) = (self.name.clone(), found.to_owned());
            Err(SuiteError::Field { suite, field, found, needed })
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if self.name.is_empty() || !self.name.bytes().all(plain) {
            return refuse("name", &format!("{:?}", self.name), "letters, digits, `_`, `-` or `.`");
        }
        if self.name == HELDOUT {
            let needed = "another name: that is the text of `data.heldout`";
            return refuse("name", "`heldout`", needed);
        }
        match (&self.folder, self.tags.is_empty()) {
            (Some(_), false) => refuse("tags", "given beside `folder`", "one of them"),
            (None, true) => refuse("folder", "absent, and so are `tags`", "one of them"),
            _ => Ok(()),
        }
    }

    /// Checks suites that are evaluated together: each of them, and that their names differ.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn validate_all(suites: &[Self]) -> Result<(), SuiteError> {
        for (index, suite) in suites.iter().enumerate() {
            suite.validate()?;
            if suites[..index].iter().any(|other| other.name == suite.name) {
                let (name, needed) = (suite.name.clone(), "a name for each suite");
                let found = "that of another".to_owned();
                return Err(SuiteError::Field { suite: name, field: "name", found, needed });
            }
        }
        Ok(())
    }

    /// The sources of the suite, one a tag, in the order of the tags.
    ///
    /// # Errors
    /// [`SuiteError`]: a folder that cannot be read or holds no tag, tags that are not those of the
    /// published suite of this name.
    pub fn sources(&self) -> Result<Vec<SourceConfig>, SuiteError> {
        self.validate()?;
        let tags = match &self.folder {
            Some(folder) => folder::tags(&self.name, folder)?,
            None => self.tags.clone(),
        };
        if let Some(published) = Published::named(&self.name) {
            published.check(tags.keys().map(String::as_str))?;
        }
        let source = |(tag, paths): (String, Vec<String>)| SourceConfig {
            name: tag.clone(),
            paths,
            domain: Some(tag),
            quality: Some(0),
            columns: self.columns.clone().unwrap_or_default(),
            ..SourceConfig::default()
        };
        Ok(tags.into_iter().map(source).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_cannot_be_is_refused_by_field() {
        let folder = SuiteConfig::of_folder("mine", "texts");
        let with_tags = |suite: SuiteConfig| {
            let tags = BTreeMap::from([("a".to_owned(), vec!["a.jsonl".to_owned()])]);
            SuiteConfig { tags, ..suite }
        };
        folder.validate().expect("a folder is enough");
        with_tags(SuiteConfig { folder: None, ..folder.clone() }).validate().expect("so are tags");
        let cases = [
            (with_tags(folder.clone()), "field `tags` is given beside `folder`"),
            (SuiteConfig { folder: None, ..folder.clone() }, "field `folder` is absent"),
            (SuiteConfig { name: "a/b".to_owned(), ..folder.clone() }, "field `name` is \"a/b\""),
            (SuiteConfig { name: "heldout".to_owned(), ..folder }, "`data.heldout`"),
        ];
        for (suite, needed) in cases {
            let error = suite.validate().expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        }
        let two = ["a", "b"].map(|name| SuiteConfig::of_folder(name, "texts"));
        SuiteConfig::validate_all(&two).expect("two names");
        let twice = ["a", "a"].map(|name| SuiteConfig::of_folder(name, "texts"));
        let error = SuiteConfig::validate_all(&twice).expect_err("one name").to_string();
        assert!(error.contains("`a`: field `name` is that of another"), "{error}");
    }
}
