//! Where an experiment stands, and whether its record still checks.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::conclusion::{Conclusion, Verdict};
use super::protocol::{PROTOCOL_FILE, Protocol, Source};
use super::readme::README_FILE;
use super::seal::{SEAL_FILE, Seal, altered, digest_of_file};
use crate::error::TrainError;
use crate::history::HISTORY_FILE;
use crate::telemetry::jsonl::LOG_FILE;

/// Where an experiment stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// Its folder.
    pub folder: PathBuf,
    /// Its title.
    pub title: String,
    /// Where its evidence comes from.
    pub source: Source,
    /// When it was sealed, in seconds since 1970; none of a draft.
    pub sealed_unix_secs: Option<u64>,
    /// Its verdict; none while it is open.
    pub verdict: Option<Verdict>,
    /// Runs whose logs are here and have the digests of the record, and those of the record.
    pub logs: (u64, u64),
    /// What does not check; none if all does.
    pub problem: Option<String>,
}

impl Standing {
    /// Of the experiment in `folder`: reads every file of it, and the logs of its runs that are where
    /// they were when it was closed.
    pub fn of(folder: &Path) -> Self {
        let mut standing = Self {
            folder: folder.to_owned(),
            title: String::new(),
            source: Source::Runs,
            sealed_unix_secs: None,
            verdict: None,
            logs: (0, 0),
            problem: None,
        };
        standing.problem = standing.check(folder).err().map(|error| error.chain());
        standing
    }

    fn check(&mut self, folder: &Path) -> Result<(), TrainError> {
        let protocol = Protocol::read(folder)?;
        self.title.clone_from(&protocol.title);
        self.source = protocol.source;
        if !folder.join(SEAL_FILE).exists() {
            return Ok(());
        }
        let seal = Seal::checked(folder)?;
        self.sealed_unix_secs = Some(seal.sealed_unix_secs);
        let conclusion = Conclusion::checked(folder, &seal.digest)?;
        let Some(conclusion) = conclusion else { return Ok(()) };
        check_page(folder, &conclusion.page)?;
        self.verdict = Some(conclusion.verdict);
        self.logs.1 = conclusion.runs.len() as u64;
        for run in &conclusion.runs {
            let folder = Path::new(&run.folder);
            let here = run.log.is_at(&folder.join(LOG_FILE))?;
            self.logs.0 += u64::from(run.history.is_at(&folder.join(HISTORY_FILE))? && here);
        }
        Ok(())
    }

    /// `draft`, `sealed`, or its verdict.
    pub fn state(&self) -> String {
        match (self.verdict, self.sealed_unix_secs) {
            (Some(verdict), _) => verdict.to_string(),
            (None, Some(_)) => "sealed".to_owned(),
            (None, None) => "draft".to_owned(),
        }
    }
}

/// Fails unless the page is the one that was rendered when the experiment was closed.
fn check_page(folder: &Path, needed: &str) -> Result<(), TrainError> {
    let path = folder.join(README_FILE);
    let found = digest_of_file(&path, u64::MAX)?;
    if found == needed { Ok(()) } else { Err(altered(&path, &found, needed)) }
}

/// The experiments in `folder`: itself, or those of its subfolders that are one, by name.
///
/// # Errors
/// If it cannot be listed.
pub fn experiments_in(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let is_one = |folder: &PathBuf| folder.join(PROTOCOL_FILE).exists();
    if is_one(&folder.to_owned()) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(TrainError::io("list", folder))? {
        found.push(entry.map_err(TrainError::io("list", folder))?.path());
    }
    found.retain(is_one);
    found.sort();
    Ok(found)
}
