//! Sums of single documents as JSON lines, the artefact from which every figure can be formed again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::SuiteError;
use super::texts::Suite;
use crate::documents::DocumentSum;
use crate::heldout::{EvalReport, Tally, is_partial};

/// Whether an exchange could drop assignments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It could not: figures do not depend on the batch.
    Dropless,
    /// The exchange of training, which may drop.
    AsTrained,
}

/// Which weights were scored, on what, and how.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scores {
    /// The run's folder, the checkpoint or the export.
    pub weights: String,
    /// Completed updates, of a checkpoint.
    pub step: Option<u64>,
    /// With or without drops.
    pub mode: Mode,
    /// Name of the suite.
    pub suite: String,
}

/// What was scored of one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DocumentLine {
    /// Of what.
    #[serde(flatten)]
    pub scores: Scores,
    /// Its tag.
    pub tag: String,
    /// Its id in the corpus.
    pub id: String,
    /// Sum of losses in nats.
    pub nats: f64,
    /// Scored tokens.
    pub tokens: u64,
    /// UTF-8 bytes of its text.
    pub bytes: u64,
    /// Whether a part of it was not read, so that it counts nowhere.
    pub partial: bool,
}

/// A file of document sums that is being written.
#[derive(Debug)]
pub struct DocumentLines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl DocumentLines {
    /// A file with no line; one that is there is written over.
    ///
    /// # Errors
    /// [`SuiteError::Io`].
    pub fn create(path: &Path) -> Result<Self, SuiteError> {
        let source = |source| SuiteError::Io { action: "create", path: path.to_owned(), source };
        let file = BufWriter::new(File::create(path).map_err(source)?);
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes a line for each document of a suite, in their order.
    ///
    /// # Errors
    /// [`SuiteError::Io`].
    pub fn write(
        &mut self,
        scores: &Scores,
        suite: &Suite,
        sums: &[DocumentSum],
    ) -> Result<(), SuiteError> {
        let mut write = || -> std::io::Result<()> {
            for (document, sum) in suite.rows.documents().iter().zip(sums) {
                let line = DocumentLine {
                    scores: scores.clone(),
                    tag: document.domain.clone(),
                    id: document.id.clone(),
                    nats: sum.nats,
                    tokens: sum.tokens,
                    bytes: document.source_bytes,
                    partial: is_partial(document, *sum),
                };
                serde_json::to_writer(&mut self.file, &line)?;
                self.file.write_all(b"\n")?;
            }
            self.file.flush()
        };
        let path = self.path.clone();
        write().map_err(|source| SuiteError::Io { action: "write", path, source })
    }
}

/// Reads a file of document sums and forms the reports again, in the order of the lines. What files held
/// beside documents with a text is not in the lines: those counts are 0.
///
/// # Errors
/// [`SuiteError::Io`], and [`SuiteError::Line`] with the first line that is no sum.
pub fn read_lines(path: &Path) -> Result<BTreeMap<Scores, EvalReport>, SuiteError> {
    let io = |source| SuiteError::Io { action: "read", path: path.to_owned(), source };
    let mut reports = BTreeMap::<Scores, EvalReport>::new();
    for (index, line) in BufReader::new(File::open(path).map_err(io)?).lines().enumerate() {
        let text = line.map_err(io)?;
        let line: DocumentLine = serde_json::from_str(&text).map_err(|source| {
            SuiteError::Line { path: path.to_owned(), line: index + 1, source }
        })?;
        let nats = exact_nats(&text).unwrap_or(line.nats);
        let DocumentLine { scores, tag, tokens, bytes, partial, .. } = line;
        let tally = Tally { documents: 1, tokens, nats, bytes };
        reports.entry(scores).or_default().take(&tag, &tally, partial);
    }
    Ok(reports)
}

/// The number behind `"nats":` to its last bit: reading JSON may round it by one unit in the last place.
/// Within a string the quotes would be escaped, so that this is the field.
fn exact_nats(line: &str) -> Option<f64> {
    let (_, number) = line.split_once("\"nats\":")?;
    number.split([',', '}']).next()?.trim().parse().ok()
}
