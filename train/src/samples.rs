//! Continuations that a model writes at evaluations and at the end of a run.
//!
//! Prompts, seed and draws are the same each time, so that what changes is the model.

use std::io::Write as _;
use std::path::Path;

use fulmar_data::Tokenizer;
use fulmar_ep::TokenDispatcher;
use fulmar_eval::ModelScorer;
use fulmar_eval::generate::{Generation, generate};
use fulmar_eval::sampling::Sampling;
use fulmar_model::moe::router::SigmoidRouter;
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::json_lines;

/// Name of the continuations in a run's folder, a line of JSON each.
pub const SAMPLES_FILE: &str = "samples.jsonl";
/// What continuations begin with where a recipe has no prompts; openings that the shipped corpus
/// resembles.
const PROMPTS: [&str; 3] = ["And the Lord said unto ", "My lord, I ", "Enter the King"];

/// A prompt and what followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Completed updates of the model that wrote it.
    pub step: u64,
    /// The start of the run that it belongs to, from 1.
    pub attempt: u64,
    /// The beginning.
    pub prompt: String,
    /// The continuation.
    pub text: String,
    /// Of the draws.
    pub temperature: f32,
}

/// Tokens of a prompt, as the beginning of a document.
///
/// # Errors
/// [`TrainError::Config`] naming `field` where it fills a row of `seq_len` tokens; or if it cannot be
/// encoded.
pub fn prompt_tokens(
    tokenizer: &Tokenizer,
    prompt: &str,
    seq_len: usize,
    field: &str,
) -> Result<Vec<u32>, TrainError> {
    let mut tokens = vec![tokenizer.bos_id()];
    tokens.extend(tokenizer.encode(prompt)?);
    if tokens.len() >= seq_len {
        let found = format!("{prompt:?} of {} tokens with the mark before it", tokens.len());
        let rule = format!("at most {}: one less than a row of the model", seq_len - 1);
        return Err(TrainError::config(field, found, rule));
    }
    Ok(tokens)
}

/// Checks the prompts of a recipe, before the first step.
///
/// # Errors
/// As [`prompt_tokens`].
pub fn check(config: &RunConfig, tokenizer: &Tokenizer) -> Result<(), TrainError> {
    encoded(config, &config.evaluation.prompts, tokenizer).map(drop)
}

/// Lets the model after `step` updates continue the prompts of `config`, or some of our own where it
/// has none; every rank takes part, and `before` is called before each forward pass.
///
/// # Errors
/// If a forward pass fails.
pub fn write<D: TokenDispatcher>(
    config: &RunConfig,
    tokenizer: &Tokenizer,
    scorer: &ModelScorer<'_, D, SigmoidRouter>,
    (step, attempt): (u64, u64),
    before: &mut dyn FnMut(),
) -> Result<Vec<Sample>, TrainError> {
    let evaluation = &config.evaluation;
    let prompts = match &evaluation.prompts[..] {
        [] => shipped_prompts(config, tokenizer),
        prompts => prompts.to_vec(),
    };
    let temperature = evaluation.temperature;
    let plan = Generation {
        max_new_tokens: evaluation.new_tokens,
        sampling: Sampling { temperature, ..Sampling::ALL },
        seed: config.seed,
        seq_len: config.model.max_seq_len,
        end_id: tokenizer.eos_id(),
    };
    let tokens = encoded(config, &prompts, tokenizer)?;
    let texts = generate(scorer, &tokens, &plan, before)?;
    let sample = |(prompt, text): (String, Vec<u32>)| {
        let text = tokenizer.decode(&text)?;
        Ok(Sample { step, attempt, prompt, text, temperature })
    };
    prompts.into_iter().zip(texts).map(sample).collect()
}

/// Those of our own that a row has room for.
fn shipped_prompts(config: &RunConfig, tokenizer: &Tokenizer) -> Vec<String> {
    let prompts = PROMPTS.map(str::to_owned).into_iter();
    prompts
        .filter(|prompt| encoded(config, std::slice::from_ref(prompt), tokenizer).is_ok())
        .collect()
}

fn encoded(
    config: &RunConfig,
    prompts: &[String],
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<u32>>, TrainError> {
    let seq_len = config.model.max_seq_len;
    let tokens = |prompt: &String| prompt_tokens(tokenizer, prompt, seq_len, "evaluation.prompts");
    prompts.iter().map(tokens).collect()
}

/// Appends samples to those of the run in `folder`.
///
/// # Errors
/// If the file cannot be written.
pub fn record(folder: &Path, samples: &[Sample]) -> Result<(), TrainError> {
    let line = |sample| serde_json::to_string(sample).expect("plain values") + "\n";
    let lines: String = samples.iter().map(line).collect();
    let path = folder.join(SAMPLES_FILE);
    let mut file = json_lines::append_to(&path)?;
    file.write_all(lines.as_bytes()).map_err(TrainError::io("write", &path))
}

/// The samples of the run in `folder` in the order in which they were written; none where there is no
/// file. A run that went on from an earlier step has written some steps again: the last ones hold.
///
/// # Errors
/// If the file cannot be read, or a line is no sample. A line that was cut short is left out.
pub fn read(folder: &Path) -> Result<Vec<Sample>, TrainError> {
    json_lines::read_all(&folder.join(SAMPLES_FILE), "sample")
}
