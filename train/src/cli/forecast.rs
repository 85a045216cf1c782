//! `train forecast`.

use std::path::{Path, PathBuf};

use clap::Args;
use fulmar_eval::forecast::{Forecast, Ladder};

use crate::error::TrainError;
use crate::forecast::{DEFAULT_METRIC, Preregistration, RungRun, Watched, read_rung};
use crate::recipe;

/// Flags of `forecast`.
#[derive(Debug, Args)]
#[command(override_usage = "train forecast [LADDER] [--run <NAME>] [OPTIONS]\n       \
    train forecast --runs <RUN>... --target <RECIPE> [--preregister <FILE>] [OPTIONS]\n       \
    train forecast --status <RUN> [--against <FILE>]")]
pub struct ForecastArgs {
    /// Table of a ladder (JSON); the published one when absent.
    pub ladder: Option<PathBuf>,
    /// The run to forecast, of which the table has the FLOPs.
    #[arg(long, value_name = "NAME", default_value = "d6144")]
    pub run: String,
    /// Folders of the runs of a ladder, instead of a table.
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with_all = ["ladder", "run"])]
    #[arg(requires = "target")]
    pub runs: Vec<PathBuf>,
    /// Recipe (TOML) of the run to forecast from those.
    #[arg(long, value_name = "RECIPE", requires = "runs")]
    pub target: Option<PathBuf>,
    /// The loss in the logs of runs.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_METRIC, requires = "runs")]
    pub metric: String,
    /// Loss that no compute gets below; chosen before the fit.
    #[arg(long, value_name = "NATS", default_value_t = 1.5)]
    pub asymptote: f64,
    /// Fix the forecast in a new file, before the run.
    #[arg(long, value_name = "FILE", requires = "runs")]
    pub preregister: Option<PathBuf>,
    /// How a run stands beside its forecast, live or at its end.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["ladder", "run", "runs"])]
    pub status: Option<PathBuf>,
    /// That forecast, instead of the one in the recipe of the run.
    #[arg(long, value_name = "FILE", requires = "status")]
    pub against: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ForecastArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        match (&self.status, &self.target) {
            (Some(run), _) => self.of_status(run),
            (None, Some(target)) => self.of_runs(target),
            (None, None) => self.of_table(),
        }
    }

    fn of_table(&self) -> Result<(), TrainError> {
        let ladder = match &self.ladder {
            Some(path) => Ladder::read(path)?,
            None => Ladder::published()?,
        };
        let forecast = Forecast::new(&ladder, &self.run, self.asymptote)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&forecast).expect("plain values"));
            return Ok(());
        }
        println!("{} ({})", ladder.metric, ladder.source);
        print!("{forecast}");
        Ok(())
    }

    fn of_status(&self, run: &Path) -> Result<(), TrainError> {
        let watched = Watched::read(run, self.against.as_deref())?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&watched).expect("plain values"));
        } else {
            print!("{watched}");
        }
        Ok(())
    }

    fn of_runs(&self, target: &Path) -> Result<(), TrainError> {
        let target = recipe::load(target, &[])?;
        let read = |folder: &PathBuf| read_rung(folder, &self.metric);
        let rungs = self.runs.iter().map(read).collect::<Result<Vec<RungRun>, TrainError>>()?;
        let mut made = Preregistration::new(&rungs, &target, &self.metric, self.asymptote)?;
        if let Some(file) = &self.preregister {
            made.digest = made.write(file)?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&made).expect("plain values"));
            return Ok(());
        }
        rungs.iter().flat_map(|rung| &rung.notes).for_each(|note| println!("{note}"));
        print!("{made}");
        if let Some(file) = &self.preregister {
            println!("fixed in {}, digest {}", file.display(), made.digest);
        }
        Ok(())
    }
}
