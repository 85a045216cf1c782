//! Continuations that a model writes at the end of a run.

use fulmar_ep::TokenDispatcher;
use fulmar_eval::ModelScorer;
use fulmar_eval::generate::{Sampling, generate};

use crate::assemble::RunData;
use crate::config::RunConfig;
use crate::error::TrainError;

/// What continuations begin with; openings that the shipped corpus resembles.
const PROMPTS: [&str; 3] = ["And the Lord said unto ", "My lord, I ", "Enter the King"];
/// New tokens of a continuation.
const NEW_TOKENS: usize = 48;
/// Below 1, so that a small model's unlikely tokens do not drown the likely ones.
pub const TEMPERATURE: f32 = 0.8;

/// A prompt and what followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The beginning.
    pub prompt: &'static str,
    /// The continuation.
    pub text: String,
}

/// Lets the model continue each prompt; every rank takes part.
///
/// # Errors
/// If a forward pass fails.
pub fn write<D: TokenDispatcher>(
    config: &RunConfig,
    data: &RunData,
    scorer: &ModelScorer<'_, D, fulmar_model::moe::router::SigmoidRouter>,
) -> Result<Vec<Sample>, TrainError> {
    let tokenizer = &data.tokenizer;
    let sample = |(index, prompt): (usize, &'static str)| {
        let mut ids = vec![tokenizer.bos_id()];
        ids.extend(tokenizer.encode(prompt)?);
        let sampling = Sampling {
            max_new_tokens: NEW_TOKENS,
            temperature: TEMPERATURE,
            seed: config.seed + index as u64,
            seq_len: config.model.max_seq_len,
            end_id: tokenizer.eos_id(),
        };
        let text = tokenizer.decode(&generate(scorer, &ids, &sampling)?)?;
        Ok(Sample { prompt, text })
    };
    PROMPTS.into_iter().enumerate().map(sample).collect()
}
