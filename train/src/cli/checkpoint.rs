//! `train checkpoint`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use fulmar_ep::Layout;
use serde_json::json;

use crate::checkpoint::manifest::{Manifest, SavedLayout, Unusable};
use crate::checkpoint::{Candidate, RECIPE, candidates, reshard, verify};
use crate::config::{CheckpointConfig, RunConfig};
use crate::error::TrainError;
use crate::recipe;
use crate::storage::{LocalStorage, Storage, open_storage};
use crate::telemetry::memory::human;

/// Flags of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

/// What to do with checkpoints.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Show the checkpoints of a run: step, size, layout, and whether each is whole.
    #[command(after_help = "Example: train checkpoint list runs/mini --json")]
    List(ListArgs),
    /// Read every byte of a checkpoint and say what is wrong with it.
    #[command(after_help = "Example: train checkpoint verify runs/mini --step 400")]
    Verify(VerifyArgs),
    /// Write a checkpoint for another number of ranks; a run needs no such thing to go on.
    #[command(after_help = "\
Example: train checkpoint reshard runs/mini --step 400 --replicas 2 --shards 4 --out elsewhere")]
    Reshard(ReshardArgs),
}

/// Flags of `checkpoint list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The run's folder, or a folder of checkpoints.
    pub run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

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

/// Flags of `checkpoint reshard`.
#[derive(Debug, Args)]
pub struct ReshardArgs {
    /// The run's folder, or a folder of checkpoints.
    pub run: PathBuf,
    /// The checkpoint after this many updates.
    #[arg(long, value_name = "N")]
    pub step: u64,
    /// Copies of the model.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub replicas: usize,
    /// Ranks that share the experts of a copy.
    #[arg(long, value_name = "P")]
    pub shards: usize,
    /// Folder for the new checkpoint's folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

impl CheckpointArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            CheckpointCommand::List(args) => args.execute(),
            CheckpointCommand::Verify(args) => args.execute(),
            CheckpointCommand::Reshard(args) => args.execute(),
        }
    }
}

/// Where the checkpoints of a run lie, as its recipe says; of a folder without a recipe, there.
fn storage_of(run: &Path) -> Result<(Arc<dyn Storage>, CheckpointConfig), TrainError> {
    let path = run.join(RECIPE);
    if !path.exists() {
        return Ok((Arc::new(LocalStorage::new(run)), CheckpointConfig::default()));
    }
    let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
    let config: RunConfig = recipe::from_toml(&text, &path.display().to_string())?;
    Ok((open_storage(&config, run)?, config.checkpoint))
}

impl ListArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let (storage, config) = storage_of(&self.run)?;
        let mut found: Vec<Candidate> = candidates(&*storage)?.collect();
        found.reverse();
        if self.json {
            let lines: Vec<_> = found.iter().map(|found| as_json(found, &config)).collect();
            println!("{}", serde_json::to_string_pretty(&lines).expect("plain values"));
            return Ok(());
        }
        println!("{:>10} {:>10} {:>8}  {:<10} state", "step", "size", "layout", "kept");
        for candidate in &found {
            let Candidate { step, bytes, manifest } = candidate;
            let (layout, state) = match manifest {
                Ok((manifest, _)) => (layout(manifest.layout), "whole".to_owned()),
                Err(Unusable::Unfinished(reason) | Unusable::Damaged(reason)) => {
                    ("-".to_owned(), reason.to_string())
                }
            };
            let kept = if is_permanent(*step, &config) { "permanent" } else { "" };
            println!("{step:>10} {:>10} {layout:>8}  {kept:<10} {state}", human(*bytes));
        }
        println!("{} in {}", found.len(), storage.locate(""));
        Ok(())
    }
}

fn layout(SavedLayout { replicas, shards, .. }: SavedLayout) -> String {
    format!("{replicas} x {shards}")
}

fn is_permanent(step: u64, config: &CheckpointConfig) -> bool {
    config.permanent_every > 0 && step.is_multiple_of(config.permanent_every)
}

fn as_json(found: &Candidate, config: &CheckpointConfig) -> serde_json::Value {
    let (step, bytes) = (found.step, found.bytes);
    let permanent = is_permanent(step, config);
    match &found.manifest {
        Ok((manifest, _)) => json!({
            "step": step, "bytes": bytes, "whole": true, "permanent": permanent,
            "layout": manifest.layout, "attempt": manifest.attempt, "weights": manifest.weights,
        }),
        Err(Unusable::Unfinished(reason) | Unusable::Damaged(reason)) => json!({
            "step": step, "bytes": bytes, "whole": false, "permanent": permanent,
            "reason": reason.to_string(),
        }),
    }
}

impl VerifyArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let (storage, _) = storage_of(&self.run)?;
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

impl ReshardArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let (storage, _) = storage_of(&self.run)?;
        let manifest = Manifest::read(&*storage, self.step)?;
        let to = LocalStorage::new(&self.out);
        let to_layout = Layout::new(self.replicas, self.shards);
        let written = reshard::reshard(&*storage, &manifest, to_layout, &to)?;
        println!(
            "step {}: {} -> {} (replicas x shards), {} in {} files below {}",
            self.step,
            layout(manifest.layout),
            layout(written.layout),
            human(written.num_bytes()),
            written.files.len(),
            to.locate(""),
        );
        Ok(())
    }
}
