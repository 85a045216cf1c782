//! `train checkpoint list`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::layout;
use crate::checkpoint::manifest::Unusable;
use crate::checkpoint::{Candidate, candidates, pins};
use crate::config::CheckpointConfig;
use crate::error::TrainError;
use crate::storage::storage_of_run;
use crate::telemetry::memory::human;

/// Flags of `checkpoint list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The run's folder, or a folder of checkpoints.
    pub run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ListArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let (storage, config) = storage_of_run(&self.run)?;
        let mut found: Vec<Candidate> = candidates(&*storage)?.collect();
        found.reverse();
        let pins = pins::standing(&*storage)?;
        let kept = |step: u64| {
            let permanent = is_permanent(step, &config).then(|| "permanent".to_owned());
            let pins = pins.get(&step).into_iter().flatten().map(ToString::to_string);
            permanent.into_iter().chain(pins).collect::<Vec<_>>().join("; ")
        };
        if self.json {
            let lines: Vec<_> =
                found.iter().map(|found| as_json(found, &kept(found.step))).collect();
            println!("{}", serde_json::to_string_pretty(&lines).expect("plain values"));
            return Ok(());
        }
        println!("{:>10} {:>10} {:>8}  state", "step", "size", "layout");
        for candidate in &found {
            let Candidate { step, bytes, manifest } = candidate;
            let (layout, state) = match manifest {
                Ok((manifest, _)) => (layout(manifest.layout), "whole".to_owned()),
                Err(Unusable::Unfinished(reason) | Unusable::Damaged(reason)) => {
                    ("-".to_owned(), reason.to_string())
                }
            };
            let kept = kept(*step);
            let kept = if kept.is_empty() { kept } else { format!("; kept: {kept}") };
            println!("{step:>10} {:>10} {layout:>8}  {state}{kept}", human(*bytes));
        }
        println!("{} in {}", found.len(), storage.locate(""));
        Ok(())
    }
}

fn is_permanent(step: u64, config: &CheckpointConfig) -> bool {
    config.permanent_every > 0 && step.is_multiple_of(config.permanent_every)
}

fn as_json(found: &Candidate, kept: &str) -> serde_json::Value {
    let (step, bytes) = (found.step, found.bytes);
    match &found.manifest {
        Ok((manifest, _)) => json!({
            "step": step, "bytes": bytes, "whole": true, "kept": kept,
            "layout": manifest.layout, "attempt": manifest.attempt, "weights": manifest.weights,
        }),
        Err(Unusable::Unfinished(reason) | Unusable::Damaged(reason)) => json!({
            "step": step, "bytes": bytes, "whole": false, "kept": kept,
            "reason": reason.to_string(),
        }),
    }
}
