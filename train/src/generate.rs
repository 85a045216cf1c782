//! Continuations of prompts by the weights of a checkpoint or an export, outside of a run.

use std::path::{Path, PathBuf};

use fulmar_data::Tokenizer;
use fulmar_ep::Dispatcher;
use fulmar_ep::transport::Group;
use fulmar_eval::ModelScorer;
use fulmar_eval::generate::Generation;
use fulmar_eval::sampling::Sampling;
use serde::Serialize;

use crate::assemble;
use crate::checkpoint::MANIFEST;
use crate::device::{self, DeviceChoice};
use crate::error::TrainError;
use crate::interchange::{Folder, Saved, Weights, load};
use crate::samples::prompt_tokens;

/// What is continued, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Completed updates of the checkpoint of a run; the newest one's when absent.
    pub step: Option<u64>,
    /// The device.
    pub device: DeviceChoice,
    /// The beginnings, each of a document of its own.
    pub prompts: Vec<String>,
    /// New tokens a prompt, at most.
    pub new_tokens: usize,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// Seed of the draws of the first prompt; that of each other one is one more.
    pub seed: u64,
}

/// A prompt and what followed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Continuation {
    /// The checkpoint, or the exported folder.
    pub weights: PathBuf,
    /// Completed updates, of a checkpoint.
    pub step: Option<u64>,
    /// The beginning.
    pub prompt: String,
    /// What followed.
    pub text: String,
    /// Tokens of the text.
    pub tokens: usize,
    /// Whether the model ended the document.
    pub ended: bool,
    /// How tokens were drawn.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Seed of the draws.
    pub seed: u64,
}

/// Continues prompts with the weights of a run, one checkpoint's folder, or a folder in the published
/// layout; every expert is in this process, whatever layout the weights were trained on.
///
/// # Errors
/// If there are no such weights or they are damaged; for a value that is out of range, and a prompt that
/// fills the model's row.
pub fn generate(place: &Path, options: &GenerateOptions) -> Result<Vec<Continuation>, TrainError> {
    check(options)?;
    if !place.join(MANIFEST).exists() && Folder::is_one(place) {
        if options.step.is_some() {
            let found = format!("given for {}", place.display());
            let rule = "a run or a checkpoint: an export has no step";
            return Err(TrainError::config("--step", found, rule));
        }
        let folder = Folder::open(place)?;
        return continued(&folder, &folder.tokenizer()?, (place.to_owned(), None), options);
    }
    let saved = Saved::find(place, options.step)?;
    let config = saved.config();
    device::require_types(config, &device::open(options.device)?)?;
    let tokenizer = assemble::tokenizer(&config.model, &config.data)?;
    continued(&saved, &tokenizer, (saved.folder(), Some(saved.step())), options)
}

fn check(options: &GenerateOptions) -> Result<(), TrainError> {
    if let Some((field, found, rule)) = options.sampling.problem() {
        return Err(TrainError::config(format!("--{}", field.replace('_', "-")), found, rule));
    }
    if options.prompts.is_empty() {
        return Err(TrainError::config("--prompt", "nowhere", "at least one"));
    }
    Ok(())
}

fn continued(
    weights: &dyn Weights,
    tokenizer: &Tokenizer,
    (place, step): (PathBuf, Option<u64>),
    options: &GenerateOptions,
) -> Result<Vec<Continuation>, TrainError> {
    let (num_experts, seq_len) = (weights.model().num_experts, weights.model().max_seq_len);
    let encode = |prompt: &String| prompt_tokens(tokenizer, prompt, seq_len, "--prompt");
    let prompts: Vec<_> = options.prompts.iter().map(encode).collect::<Result<_, _>>()?;
    let device = device::open(options.device)?.device;
    let model = load(weights, 0..num_experts, &device)?;
    let dispatcher = Dispatcher::dropless(num_experts, &Group::solo())?;
    let scorer = ModelScorer::new(&model, &dispatcher, &device);
    let GenerateOptions { new_tokens, sampling, seed, .. } = *options;
    let end_id = tokenizer.eos_id();
    let plan = Generation { max_new_tokens: new_tokens, sampling, seed, seq_len, end_id };
    let texts = fulmar_eval::generate::generate(&scorer, &prompts, &plan, &mut || {})?;
    let continuation = |((prompt, tokens), seed): ((&String, Vec<u32>), u64)| {
        Ok(Continuation {
            weights: place.clone(),
            step,
            prompt: prompt.clone(),
            text: tokenizer.decode(&tokens)?,
            tokens: tokens.len(),
            ended: tokens.len() < new_tokens,
            sampling,
            seed,
        })
    };
    options.prompts.iter().zip(texts).zip(seed..).map(continuation).collect()
}
