//! `train explain`.

use std::path::PathBuf;

use clap::Args;

use crate::error::TrainError;
use crate::explain;

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Folder of the run.
    pub run: PathBuf,
    /// The update, by the completed updates after it; one that lies ahead is told as planned.
    pub step: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ExplainArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let explanation = explain::explain(&self.run, self.step)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&explanation).expect("plain values"));
        } else {
            print!("{explanation}");
        }
        Ok(())
    }
}
