//! The published suites by their tags.

use super::error::SuiteError;

/// A suite whose tags are public, so that its macro mean can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its name here and in metrics.
    pub name: &'static str,
    /// Its tags, in the order of their names.
    pub tags: &'static [&'static str],
}

/// Paloma as the public run evaluates it: the validation split of 16 of its sources, 154,440
/// documents.
///
/// # Source
/// Magnusson et al., "Paloma: A Benchmark for Evaluating Language Model Fit", 2023; tags as in the
/// public run's metrics (`paloma/c4_en/...`).
pub const PALOMA: Published = Published {
    name: "paloma",
    tags: &[
        "4chan",
        "c4_100_domains",
        "c4_en",
        "dolma-v1_5",
        "dolma_100_programing_languages",
        "dolma_100_subreddits",
        "falcon-refinedweb",
        "gab",
        "m2d2_s2orc_unsplit",
        "m2d2_wikipedia_unsplit",
        "manosphere_meta_sep",
        "mc4",
        "ptb",
        "redpajama",
        "twitterAAE_HELM_fixed",
        "wikitext_103",
    ],
};

/// `UncheatableEval` of July 2026: 15 categories of 500 documents. Its release calls
/// `arxiv_computer_science` `arxiv_cs`.
///
/// # Source
/// The release of 2026-07 and the public run's metrics, which keep the longer name.
pub const UNCHEATABLE: Published = Published {
    name: "uncheatable",
    tags: &[
        "ao3_english",
        "ao3_nonenglish",
        "arxiv_computer_science",
        "arxiv_math",
        "arxiv_other",
        "arxiv_physics",
        "bbc_news",
        "biorxiv_all",
        "github_cpp",
        "github_javascript",
        "github_markdown",
        "github_other",
        "github_python",
        "wikipedia_english",
        "wikipedia_nonenglish",
    ],
};

impl Published {
    /// The published suite of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        [&PALOMA, &UNCHEATABLE].into_iter().find(|suite| suite.name == name)
    }

    /// Fails unless `tags` are the published ones.
    ///
    /// # Errors
    /// [`SuiteError::Tags`], naming each that is missing and each that is not published.
    pub fn check<'a>(&self, tags: impl Iterator<Item = &'a str>) -> Result<(), SuiteError> {
        let found: Vec<&str> = tags.collect();
        let absent = |from: &[&str], tags: &[&str]| -> Vec<String> {
            tags.iter().filter(|tag| !from.contains(tag)).map(|tag| (*tag).to_owned()).collect()
        };
        let (missing, unknown) = (absent(&found, self.tags), absent(self.tags, &found));
        if missing.is_empty() && unknown.is_empty() {
            return Ok(());
        }
        let (suite, needed) = (self.name.to_owned(), self.tags.len());
        Err(SuiteError::Tags { suite, missing, unknown, needed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_suites_have_16_and_15_tags_in_order() {
        for (suite, count) in [(PALOMA, 16), (UNCHEATABLE, 15)] {
            assert_eq!(suite.tags.len(), count);
            assert!(suite.tags.is_sorted() && Published::named(suite.name) == Some(&suite));
        }
        assert_eq!(Published::named("mine"), None);
    }

    #[test]
    fn a_missing_and_an_extra_tag_are_said_by_name() {
        PALOMA.check(PALOMA.tags.iter().copied()).expect("the published tags");
        let other = PALOMA.tags.iter().map(|tag| if *tag == "ptb" { "ptbx" } else { tag });
        let error = PALOMA.check(other).expect_err("ptb is missing").to_string();
        let needed = "suite `paloma` lacks `ptb` and has besides `ptbx`, needed the 16 published";
        assert!(error.starts_with(needed), "{error}");
        let error = UNCHEATABLE.check(UNCHEATABLE.tags[..13].iter().copied());
        let error = error.expect_err("two are missing").to_string();
        assert!(error.contains("lacks `wikipedia_english`, `wikipedia_nonenglish`, n"), "{error}");
        let extra = UNCHEATABLE.tags.iter().copied().chain(["arxiv_cs"]);
        let error = UNCHEATABLE.check(extra).expect_err("one too many").to_string();
        assert!(error.contains("`uncheatable` has besides `arxiv_cs`, needed"), "{error}");
    }
}
