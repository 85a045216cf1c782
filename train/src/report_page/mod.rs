//! The report of runs: one HTML page that needs nothing else, with its plots inside.
//!
//! Everything on it is read from the runs' folders and nothing is computed that is not there: a figure
//! that was not logged is said to be missing. The page works without scripts and without a network;
//! what a run's files say is escaped, whatever it is.

mod axes;
mod charts;
mod colours;
mod follow;
mod heat;
mod lineage;
mod page;
mod ranges;
mod sections;
mod series;
mod source;

use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use follow::follow;
pub use source::{Attempt, Source, State};

use crate::error::TrainError;
use crate::experiment;
use crate::forecast::Preregistration;

/// What a report is made of.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// Folders of the runs, in the order they are shown.
    pub runs: Vec<PathBuf>,
    /// The page.
    pub out: PathBuf,
    /// A preregistered forecast to draw the run it is of against; when absent, that of the first run
    /// whose recipe has one.
    pub forecast: Option<PathBuf>,
    /// A folder of experiment records.
    pub experiments: Option<PathBuf>,
}

/// Everything that the page shows.
struct Contents {
    runs: Vec<Source>,
    forecast: Option<Preregistration>,
    experiments: Option<Vec<sections::Experiment>>,
}

/// Writes the page once; readers see the old one or the new one, never half of one.
///
/// # Errors
/// If a run, forecast or experiment cannot be read, or the page cannot be written.
pub fn write(options: &ReportOptions) -> Result<(), TrainError> {
    write_and_tell(options).map(drop)
}

/// As [`write`]; how far each run was.
fn write_and_tell(options: &ReportOptions) -> Result<Vec<State>, TrainError> {
    let runs = options.runs.iter().map(|folder| Source::read(folder));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let states = runs.iter().map(Source::state).collect();
    let of_recipe = || runs.iter().find_map(|source| source.config().forecast.clone());
    let forecast = options.forecast.clone().or_else(of_recipe);
    let forecast = forecast.as_deref().map(Preregistration::read).transpose()?;
    let experiments = options.experiments.as_deref().map(experiments_in).transpose()?;
    let contents = Contents { runs, forecast, experiments };
    replace(&options.out, &page::page(&contents)?)?;
    Ok(states)
}

/// The records in a folder.
fn experiments_in(folder: &Path) -> Result<Vec<sections::Experiment>, TrainError> {
    let folders = experiment::experiments_in(folder)?;
    folders.iter().map(|folder| sections::Experiment::read(folder)).collect()
}

/// Puts `text` in the place of the file at `path`.
fn replace(path: &Path, text: &str) -> Result<(), TrainError> {
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    // In the same folder, so that it can be renamed.
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(TrainError::io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(TrainError::io("rename to", path))
}

#[cfg(test)]
mod tests;
