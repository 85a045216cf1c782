//! `train report`.

use std::path::PathBuf;

use clap::Args;

use crate::error::TrainError;
use crate::report_page::{self, ReportOptions};

/// Flags of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of the runs, in the order they are shown.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The page.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Write the page again at each evaluation, until every run has ended.
    #[arg(long)]
    pub follow: bool,
    /// A preregistered forecast to draw its run against.
    #[arg(long, value_name = "FILE")]
    pub forecast: Option<PathBuf>,
    /// Experiment records to show: one, or a folder of them.
    #[arg(long, value_name = "DIR")]
    pub experiments: Option<PathBuf>,
}

impl ReportArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let Self { runs, out, follow, forecast, experiments } = self;
        let options = ReportOptions { runs, out, forecast, experiments };
        if follow {
            let mut pages = 0;
            return report_page::follow(&options, &mut || {
                pages += 1;
                println!("{}: written {pages} times", options.out.display());
            });
        }
        report_page::write(&options)?;
        println!("{}", options.out.display());
        Ok(())
    }
}
