//! `train plan`.

use std::path::PathBuf;

use clap::Args;

use crate::error::TrainError;
use crate::plan::Plan;
use crate::recipe;

/// Flags of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The recipe (TOML).
    pub recipe: PathBuf,
    /// Change a field: path=value, as often as needed.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl PlanArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let plan = Plan::new(&recipe::load(&self.recipe, &self.set)?);
        if self.json {
            println!("{}", plan.to_json());
        } else {
            print!("{plan}");
        }
        Ok(())
    }
}
