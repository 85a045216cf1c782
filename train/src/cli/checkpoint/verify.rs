//! `train checkpoint verify`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::checkpoint::{candidates, verify};
use crate::error::TrainError;
use crate::storage::storage_of_run;
use crate::telemetry::memory::human;

/// Flags of `checkpoint verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The run's folder, or a folder of checkpoints.
    pub run: PathBuf,
    /// The checkpoint after this many updates; all of them when absent.
    #[arg(long, value_name = "N")]
    pub step: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl VerifyArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let (storage, _) = storage_of_run(&self.run)?;
        let steps = match self.step {
            Some(step) => vec![step],
            None => candidates(&*storage)?.map(|found| found.step).collect(),
        };
        let (mut lines, mut wrong) = (Vec::new(), 0);
        for step in steps.iter().rev() {
            let (bytes, problems) = match verify::verify(&*storage, *step) {
                Ok((manifest, problems)) => (manifest.num_bytes(), problems),
                Err(problem) => (0, vec![problem]),
            };
            let problems: Vec<String> = problems.iter().map(TrainError::chain).collect();
            wrong += usize::from(!problems.is_empty());
            if !self.json {
                print_verified(*step, bytes, &problems);
            }
            lines.push(json!({
                "step": step, "bytes": bytes, "whole": problems.is_empty(), "problems": problems,
            }));
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&lines).expect("plain values"));
        }
        let path = PathBuf::from(storage.locate(""));
        match (wrong, steps.len()) {
            (_, 0) => Err(TrainError::checkpoint(&path, "there is none")),
            (0, _) => Ok(()),
            (wrong, all) => {
                Err(TrainError::checkpoint(&path, format!("{wrong} of {all} are not whole")))
            }
        }
    }
}

fn print_verified(step: u64, bytes: u64, problems: &[String]) {
    if problems.is_empty() {
        println!("step {step}: whole, {} read", human(bytes));
    }
    for problem in problems {
        println!("step {step}: {problem}");
    }
}
