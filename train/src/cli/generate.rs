//! `train generate`.

use std::path::PathBuf;

use clap::Args;
use fulmar_eval::sampling::Sampling;

use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::generate::{Continuation, GenerateOptions, generate};

/// Flags of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder of a run, a checkpoint or an export.
    pub run: PathBuf,
    /// The beginning of a document; as often as needed.
    #[arg(long = "prompt", value_name = "TEXT", required = true)]
    pub prompts: Vec<String>,
    /// Completed updates of the checkpoint; those of the newest when absent.
    #[arg(long, value_name = "N")]
    pub step: Option<u64>,
    /// New tokens a prompt, at most.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub new_tokens: usize,
    /// Divides the scores; 0 takes the best token each time.
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temperature: f32,
    /// Draw among so many best tokens; 0 for all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Draw among the fewest best tokens of this share together.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f32,
    /// Seed of the first prompt's draws; each other one's is one more.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// auto, cpu, wgpu or cuda.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub device: DeviceChoice,
    /// Print JSON, a line a prompt.
    #[arg(long)]
    pub json: bool,
}

impl GenerateArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let Self { temperature, top_k, top_p, .. } = self;
        let options = GenerateOptions {
            step: self.step,
            device: self.device,
            prompts: self.prompts,
            new_tokens: self.new_tokens,
            sampling: Sampling { temperature, top_k, top_p },
            seed: self.seed,
        };
        for continuation in generate(&self.run, &options)? {
            if self.json {
                println!("{}", serde_json::to_string(&continuation).expect("plain values"));
            } else {
                let Continuation { prompt, text, ended, .. } = &continuation;
                println!("{prompt}|{text}{}\n", if *ended { "|" } else { "" });
            }
        }
        Ok(())
    }
}
