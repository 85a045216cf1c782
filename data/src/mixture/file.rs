//! A mixture as a file: cells, weights by phase or stage, and the run that it is planned for.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    CellSize, CellTable, DEFAULT_BLOCK_ROWS, DEFAULT_MAX_EPOCHS, MixtureConfig, MixtureRun, Phase,
    SimulatedEpoching, Stage, stages_of_phases,
};
use crate::{DataError, LengthChange, Result, RowLengths, Store};

/// A mixture file (TOML). Paths in it start from its own folder.
///
/// Weights are given by `phases`, each with its share of the run, or by `stages` with their blocks;
/// cells by a table ([`CellTable`]) or by a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureFile {
    /// Table of cells and weights.
    #[serde(default)]
    pub cells: Option<PathBuf>,
    /// Folder of a store whose cells are meant; instead of `cells`.
    #[serde(default)]
    pub store: Option<PathBuf>,
    /// Tokens of a row at the start.
    pub seq_len: usize,
    /// Tokens of the longest row that is planned; `seq_len` when absent.
    #[serde(default)]
    pub longest_row: Option<usize>,
    /// Later lengths.
    #[serde(default)]
    pub lengths: Vec<LengthChange>,
    /// Rows of a step, of the first length.
    pub batch_rows: u64,
    /// Steps of the run.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Tokens of the run, to the nearest step; instead of `steps`.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Rows within which counts are exact.
    #[serde(default = "default_block_rows")]
    pub block_rows: u64,
    /// Seed of the run.
    #[serde(default)]
    pub seed: u64,
    /// How often a cell may be read.
    #[serde(default = "default_max_epochs")]
    pub max_epochs: f64,
    /// Sees of each cell the share that the run has of a full one.
    #[serde(default)]
    pub simulated_epoching: Option<SimulatedEpoching>,
    /// Weights by share of the run.
    #[serde(default)]
    pub phases: Vec<PhaseEntry>,
    /// Weights by block.
    #[serde(default)]
    pub stages: Vec<Stage>,
}

/// One phase in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEntry {
    /// As in [`Phase::share`].
    pub share: f64,
    /// A column of the table, or weights by cell.
    pub weights: PhaseWeights,
}

/// Where the weights of a phase stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PhaseWeights {
    /// In a column of the table of cells.
    Column(String),
    /// Here, by cell.
    Here(BTreeMap<String, f64>),
}

fn default_block_rows() -> u64 {
    DEFAULT_BLOCK_ROWS
}

fn default_max_epochs() -> f64 {
    DEFAULT_MAX_EPOCHS
}

impl MixtureFile {
    /// The Harrier mixture over the hero run, which ships with the project: 200 cells, two phases.
    ///
    /// ```
    /// use fulmar_data::mixture::MixtureFile;
    ///
    /// let (file, cells) = MixtureFile::harrier()?;
    /// let run = file.run_of_table(&cells)?;
    /// assert_eq!(run.mixture.stages[1].from_block * 49_152, 312_192 * 11_264);
    /// # Ok::<(), fulmar_data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// None but for a damaged build: the files are part of it.
    pub fn harrier() -> Result<(Self, CellTable)> {
        let file = include_str!("../../mixtures/harrier/mixture.toml");
        let cells = include_str!("../../mixtures/harrier/cells.tsv");
        Ok((Self::parse(file, "harrier")?, CellTable::parse(cells, "harrier cells.tsv")?))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DataError::Io`], and those of [`MixtureFile::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(DataError::io("read mixture", path))?;
        let mut file = Self::parse(&text, &path.display().to_string())?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for place in [&mut file.cells, &mut file.store].into_iter().flatten() {
            *place = folder.join(&*place);
        }
        Ok(file)
    }

    /// Reads a file's text; `origin` names it in errors. Paths stay as they are.
    ///
    /// # Errors
    /// [`DataError::MixtureFile`] for TOML of another form.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let problem = |error: toml::de::Error| DataError::MixtureFile {
            origin: origin.to_owned(),
            problem: error.to_string(),
        };
        toml::from_str(text).map_err(problem)
    }

    /// The run that the file describes, with the cells of its table or store.
    ///
    /// # Errors
    /// Those of [`CellTable::read`], [`Store::open`] and [`MixtureFile::run_over`].
    pub fn run(&self) -> Result<MixtureRun> {
        match (&self.cells, &self.store) {
            (Some(table), None) => self.run_of_table(&CellTable::read(table)?),
            (None, Some(store)) => self.run_over(CellSize::of_store(&Store::open(store)?)),
            (None, None) => Err(refused("cells", "absent", "a table of cells, or `store`")),
            (Some(_), Some(_)) => Err(refused("store", "given beside `cells`", "one of them")),
        }
    }

    /// The run that the file describes, with the cells and weights of a table.
    ///
    /// # Errors
    /// Those of [`CellTable::weights`] and [`MixtureFile::run_over`].
    pub fn run_of_table(&self, table: &CellTable) -> Result<MixtureRun> {
        let mut file = self.clone();
        for phase in &mut file.phases {
            if let PhaseWeights::Column(column) = &phase.weights {
                phase.weights = PhaseWeights::Here(table.weights(column)?);
            }
        }
        file.run_over(table.cells().to_vec())
    }

    /// The run that the file describes, over given cells.
    ///
    /// # Errors
    /// [`DataError::Mixture`] for fields that contradict each other, weights in a column where
    /// there is no table, and the rules of [`stages_of_phases`]; those of [`RowLengths::plan`].
    pub fn run_over(&self, cells: Vec<CellSize>) -> Result<MixtureRun> {
        let longest = self.lengths.iter().map(|change| change.seq_len);
        let longest = longest.chain([self.seq_len]).max().unwrap_or(self.seq_len);
        let lengths = RowLengths {
            first: self.seq_len,
            longest: self.longest_row.unwrap_or(longest),
            changes: self.lengths.clone(),
        };
        let tokens_per_step = self.batch_rows.saturating_mul(self.seq_len as u64);
        let batches = lengths.plan(self.block_rows)?.batches(tokens_per_step)?;
        let steps = match (self.steps, self.tokens) {
            (Some(steps), None) => steps,
            (None, Some(tokens)) => {
                tokens / tokens_per_step + u64::from(tokens % tokens_per_step * 2 > tokens_per_step)
            }
            _ => return Err(refused("steps", "absent or beside `tokens`", "one of the two")),
        };
        let stages = match (self.stages.is_empty(), self.phases.is_empty()) {
            (false, true) => self.stages.clone(),
            (true, false) => stages_of_phases(&self.weighted_phases()?, steps, &batches)?,
            (true, true) => return Err(refused("phases", "empty", "a phase, or `stages`")),
            (false, false) => {
                return Err(refused("stages", "given beside `phases`", "one of them"));
            }
        };
        if self.max_epochs.is_nan() || self.max_epochs <= 0.0 {
            return Err(refused("max_epochs", self.max_epochs, "a number above 0"));
        }
        let run = MixtureRun {
            cells,
            mixture: MixtureConfig { block_rows: self.block_rows, stages },
            lengths,
            tokens_per_step,
            steps,
            seed: self.seed,
            epoching: self.simulated_epoching.clone(),
            epoching_tokens: None,
            max_epochs: self.max_epochs,
        };
        run.mixture.validate()?;
        Ok(run)
    }

    fn weighted_phases(&self) -> Result<Vec<Phase>> {
        let phase = |(index, phase): (usize, &PhaseEntry)| match &phase.weights {
            PhaseWeights::Here(weights) => {
                Ok(Phase { share: phase.share, weights: weights.clone() })
            }
            PhaseWeights::Column(column) => Err(refused(
                &format!("phases[{index}].weights"),
                format!("column `{column}`"),
                "a table of cells that has it (`cells`)",
            )),
        };
        self.phases.iter().enumerate().map(phase).collect()
    }
}

fn refused(field: &str, found: impl ToString, needed: &str) -> DataError {
    let (field, needed) = (field.to_owned(), needed.to_owned());
    DataError::Mixture { field, found: found.to_string(), needed }
}
