//! `train checkpoint export`.

use std::path::PathBuf;

use clap::Args;

use crate::error::TrainError;
use crate::interchange::{ExportDtype, ExportOptions, Saved, export};
use crate::telemetry::memory::human;

/// Flags of `checkpoint export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A run's folder, or one checkpoint's.
    #[arg(value_name = "RUN_OR_CHECKPOINT")]
    pub source: PathBuf,
    /// Completed updates of the checkpoint, instead of the newest.
    #[arg(long, value_name = "N")]
    pub step: Option<u64>,
    /// The folder to write, new or empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// f32 or bf16; router biases stay f32.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub dtype: ExportDtype,
    /// Most bytes of tensors in a file.
    #[arg(long, value_name = "BYTES", default_value_t = 5_000_000_000)]
    pub max_shard_bytes: u64,
    /// Leave out the comparison, which needs the memory of a model in f32.
    #[arg(long)]
    pub no_check: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ExportArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let saved = Saved::find(&self.source, self.step)?;
        let exported = export(
            &saved,
            &ExportOptions {
                out: self.out,
                dtype: self.dtype,
                max_shard_bytes: self.max_shard_bytes,
                check: !self.no_check,
            },
        )?;
        if self.json {
            println!("{}", serde_json::to_string(&exported).expect("plain values"));
            return Ok(());
        }
        println!("checkpoint  {} (step {})", exported.checkpoint.display(), exported.step);
        println!(
            "written     {}: {} tensors, {} in {} file(s)",
            exported.out.display(),
            exported.tensors,
            human(exported.bytes),
            exported.files,
        );
        match &exported.check {
            Some(check) => print!("{}", check.table()),
            None => println!("unchecked: what was written was not read again"),
        }
        Ok(())
    }
}
