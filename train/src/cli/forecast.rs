//! `train forecast`.

use std::path::PathBuf;

use clap::Args;
use fulmar_eval::forecast::{Forecast, Ladder};

use crate::error::TrainError;

/// Flags of `forecast`.
#[derive(Debug, Args)]
pub struct ForecastArgs {
    /// Table of a ladder (JSON); the published one when absent.
    pub ladder: Option<PathBuf>,
    /// The run to forecast, of which the table has the FLOPs.
    #[arg(long, value_name = "NAME", default_value = "d6144")]
    pub run: String,
    /// Loss that no compute gets below; chosen before the fit.
    #[arg(long, value_name = "NATS", default_value_t = 1.5)]
    pub asymptote: f64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ForecastArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
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
}
