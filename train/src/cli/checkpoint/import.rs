//! `train checkpoint import`.

use std::path::PathBuf;

use clap::Args;

use crate::error::TrainError;
use crate::interchange::{ImportOptions, import};
use crate::plan::grouped;

/// Flags of `checkpoint import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A folder with config.json, safetensors and tokenizer.json.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Folder of the run to make.
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    /// The run's recipe, of the same model; made from config.json when absent.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "steps"])]
    pub recipe: Option<PathBuf>,
    /// Rows of a step, for a recipe that is made.
    #[arg(long, value_name = "N", required_unless_present = "recipe")]
    pub rows: Option<u64>,
    /// Steps of the schedule, for a recipe that is made.
    #[arg(long, value_name = "N", required_unless_present = "recipe")]
    pub steps: Option<u64>,
    /// Change a field of the recipe: path=value, as often as needed.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

impl ImportArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let (folder, out) = (self.folder.clone(), self.out.clone());
        let imported = import(&ImportOptions {
            folder: self.folder,
            out: self.out,
            recipe: self.recipe,
            rows: self.rows,
            steps: self.steps,
            set: self.set,
        })?;
        println!(
            "imported    {}: {} tensors, {} parameters",
            folder.display(),
            imported.tensors,
            grouped(imported.parameters),
        );
        println!("recipe      {}", imported.recipe.display());
        println!("checkpoint  {}", imported.checkpoint);
        let (recipe, out) = (imported.recipe.display(), out.display());
        println!("go on with  train run {recipe} --out {out} --resume");
        Ok(())
    }
}
