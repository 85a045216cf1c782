//! What is looked for.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{DataError, Result};

/// Settings of a cleaning pass, all part of the decisions file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CleanSettings {
    /// Whether documents with an earlier one's text are looked for.
    pub exact: bool,
    /// How near duplicates are looked for, if they are.
    pub fuzzy: Option<FuzzySettings>,
    /// How evaluation texts are looked for, if there are any.
    pub contamination: Option<ContaminationSettings>,
}

impl Default for CleanSettings {
    fn default() -> Self {
        Self { exact: true, fuzzy: Some(FuzzySettings::default()), contamination: None }
    }
}

/// MinHash with bands of equal rows.
///
/// Two documents of Jaccard similarity J share a band with probability 1 - (1 - J^r)^b for b bands
/// of r rows, and the estimate of J has a standard deviation of sqrt(J (1 - J) / (b r)). With the
/// defaults a pair of J = 0.8 is found 97 times in 100, one of 0.7 some 4 times, one of 0.5 less
/// than once in 1e12.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FuzzySettings {
    /// What a document is a set of.
    pub shingle: Shingle,
    /// Number of bands.
    pub num_bands: usize,
    /// Hashes of a band.
    pub band_rows: usize,
    /// Smallest estimated Jaccard similarity of near duplicates, 0 to 1.
    pub threshold: f64,
    /// Seed of the hash functions.
    pub seed: u64,
}

impl Default for FuzzySettings {
    fn default() -> Self {
        let shingle = Shingle::Words(5);
        Self { shingle, num_bands: 32, band_rows: 8, threshold: 0.75, seed: 0 }
    }
}

impl FuzzySettings {
    /// Hashes of a signature.
    pub fn num_hashes(&self) -> usize {
        self.num_bands * self.band_rows
    }

    /// Probability that two documents of this similarity share a band.
    pub fn candidate_probability(&self, jaccard: f64) -> f64 {
        1.0 - (1.0 - jaccard.powi(self.band_rows as i32)).powi(self.num_bands as i32)
    }
}

/// A run of words or of characters.
///
/// A text with fewer of them than a run has is one shingle; a text without any is never a near
/// duplicate. Texts in scripts without spaces need characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Shingle {
    /// So many words.
    Words(usize),
    /// So many characters.
    Characters(usize),
}

impl fmt::Display for Shingle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(len) => write!(f, "words:{len}"),
            Self::Characters(len) => write!(f, "characters:{len}"),
        }
    }
}

impl FromStr for Shingle {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self> {
        let (unit, len) = text.split_once(':').unwrap_or((text, ""));
        match (unit, len.parse()) {
            ("words", Ok(len @ 1..)) => Ok(Self::Words(len)),
            ("characters", Ok(len @ 1..)) => Ok(Self::Characters(len)),
            _ => Err(DataError::setting("shingle", text, "words:N or characters:N, N at least 1")),
        }
    }
}

impl TryFrom<String> for Shingle {
    type Error = DataError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Shingle> for String {
    fn from(shingle: Shingle) -> Self {
        shingle.to_string()
    }
}

/// When a document counts as holding an evaluation text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContaminationSettings {
    /// Words of a run; evaluation texts with fewer are not looked for, and counted.
    pub ngram: usize,
    /// Distinct runs of one evaluation text that a document must share, at least 1.
    pub min_count: usize,
    /// Share of the evaluation text's distinct runs that a document must hold, 0 to 1.
    pub min_share: f64,
}

impl Default for ContaminationSettings {
    /// 13 words, as in the GPT-3 paper (Brown et al. 2020, appendix C); one run is enough.
    fn default() -> Self {
        Self { ngram: 13, min_count: 1, min_share: 0.0 }
    }
}

impl CleanSettings {
    /// # Errors
    /// [`DataError::Setting`] names the first field that breaks a rule.
    pub(super) fn validate(&self) -> Result<()> {
        if let Some(fuzzy) = self.fuzzy {
            let hashes = fuzzy.num_hashes();
            if hashes == 0 || hashes > 1 << 16 {
                let rule = "1 to 65,536 hashes in num_bands x band_rows";
                return Err(DataError::setting("num_bands", fuzzy.num_bands, rule));
            }
            require_share("threshold", fuzzy.threshold)?;
        }
        if let Some(contamination) = self.contamination {
            if contamination.ngram == 0 {
                return Err(DataError::setting("ngram", 0, "at least 1"));
            }
            if contamination.min_count == 0 {
                return Err(DataError::setting("min_count", 0, "at least 1"));
            }
            require_share("min_share", contamination.min_share)?;
        }
        Ok(())
    }
}

fn require_share(field: &'static str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(DataError::setting(field, share, "0 to 1"))
}
