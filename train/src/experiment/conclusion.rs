//! What is written after: `result.json`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::seal::{altered, digest_of_file, digest_without};
use crate::error::TrainError;

/// Name of the conclusion in an experiment's folder.
pub(super) const CONCLUSION_FILE: &str = "result.json";

/// What came of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every criterion is met.
    Accepted,
    /// One is not.
    Rejected,
    /// It cannot be said.
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// The verdict, with all that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conclusion {
    /// The verdict.
    pub verdict: Verdict,
    /// What was learnt, also what was not expected.
    pub text: String,
    /// Seconds since 1970 by this machine's clock; for people.
    pub closed_unix_secs: u64,
    /// Release of the program.
    pub release: String,
    /// Digest of the seal.
    pub seal: String,
    /// The runs that were made, in the protocol's order.
    pub runs: Vec<RunEvidence>,
    /// Planned runs that were not made.
    pub missing: Vec<String>,
    /// Every measure of every run.
    pub measures: Vec<MeasureFinding>,
    /// Every criterion.
    pub criteria: Vec<CriterionFinding>,
    /// Digest of the page, `README.md`, as it was rendered: another release may render it otherwise.
    pub page: String,
    /// Digest of all of the above.
    pub digest: String,
}

/// A run as it was when the experiment was closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEvidence {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: String,
    /// When it was first started, in seconds since 1970, by the clock of its machine; for people.
    pub started_unix_secs: u64,
    /// Starts.
    pub attempts: u64,
    /// Completed updates.
    pub steps: u64,
    /// Those that were planned.
    pub horizon: u64,
    /// Updates that were left out because they were not finite.
    pub skipped: u64,
    /// Its metric log.
    pub log: Evidence,
    /// Its history.
    pub history: Evidence,
}

/// A file to which lines are only added, as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Its size.
    pub bytes: u64,
    /// Digest of so many first bytes of it.
    pub digest: String,
}

impl Evidence {
    /// Of a file as it is.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> Result<Self, TrainError> {
        let file = std::fs::metadata(path).map_err(TrainError::io("read", path))?;
        Ok(Self { bytes: file.len(), digest: digest_of_file(path, file.len())? })
    }

    /// Whether the file is there and begins so.
    ///
    /// # Errors
    /// If it is there and does not, or cannot be read.
    pub fn is_at(&self, path: &Path) -> Result<bool, TrainError> {
        if !path.exists() {
            return Ok(false);
        }
        let found = digest_of_file(path, self.bytes)?;
        if found == self.digest { Ok(true) } else { Err(altered(path, &found, &self.digest)) }
    }
}

impl RunEvidence {
    /// Whether it came to its end.
    pub fn is_finished(&self) -> bool {
        self.steps == self.horizon
    }
}

/// A measure of each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureFinding {
    /// Its name.
    pub name: String,
    /// Its value by run; none of a run that was not made, did not come to its end or had no number.
    pub values: BTreeMap<String, Option<f64>>,
}

/// A criterion as it came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CriterionFinding {
    /// What it says.
    pub text: String,
    /// The value that was compared; none where a run has none.
    pub value: Option<f64>,
    /// Whether it is met.
    pub met: bool,
}

impl Conclusion {
    /// The conclusion of the experiment in `folder`, with the digest of its seal, if it is closed.
    ///
    /// # Errors
    /// If it was altered, or belongs to another seal.
    pub fn checked(folder: &Path, seal: &str) -> Result<Option<Self>, TrainError> {
        let path = folder.join(CONCLUSION_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        let conclusion: Self = serde_json::from_str(&text)
            .map_err(|error| TrainError::experiment(&path, error.to_string()))?;
        let found = digest_without(&text, &conclusion.digest);
        if found != conclusion.digest {
            return Err(altered(&path, &found, &conclusion.digest));
        }
        if conclusion.seal != seal {
            let problem = format!("it belongs to the seal {}, not {seal}", conclusion.seal);
            return Err(TrainError::experiment(&path, problem));
        }
        Ok(Some(conclusion))
    }
}
