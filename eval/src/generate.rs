//! Continuations of prompts by sampling.

use fulmar_data::Batch;
use fulmar_ep::TokenDispatcher;
use fulmar_model::moe::router::Router;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::EvalError;
use crate::scorer::ModelScorer;

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// New tokens a prompt, at most.
    pub max_new_tokens: usize,
    /// Divides the scores; 0 takes the best token.
    pub temperature: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Tokens in the model's row; a longer text is cut at its start.
    pub seq_len: usize,
    /// Ends a continuation.
    pub end_id: u32,
}

/// The tokens that follow the prompt, without it.
///
/// Where the model lies on several shards, each of them calls this, and the first one's draws hold
/// for all: sums of different orders may round a score to another token.
///
/// # Errors
/// [`EvalError::Prompt`] for a prompt that is empty or fills the row, or the forward pass's.
pub fn generate<D: TokenDispatcher, R: Router>(
    scorer: &ModelScorer<'_, D, R>,
    prompt: &[u32],
    sampling: &Sampling,
) -> Result<Vec<u32>, EvalError> {
    if prompt.is_empty() || prompt.len() >= sampling.seq_len {
        return Err(EvalError::Prompt { found: prompt.len(), needed: sampling.seq_len - 1 });
    }
    let mut generator = ChaCha8Rng::seed_from_u64(sampling.seed);
    let mut text = prompt.to_vec();
    for _ in 0..sampling.max_new_tokens {
        let window = &text[text.len().saturating_sub(sampling.seq_len)..];
        let logits = scorer.next_logits(&Batch::of_document(window), window.len() - 1)?;
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let next = draw(&logits, sampling.temperature, generator.random());
        let draws = scorer.shards().gather_u64("sampled token", &[u64::from(next)])?;
        let next = draws[0][0] as u32;
        if next == sampling.end_id {
            break;
        }
        text.push(next);
    }
    Ok(text.split_off(prompt.len()))
}

/// The token at `uniform` (0 to 1) of the distribution's cumulative sum.
fn draw(logits: &[f32], temperature: f32, uniform: f32) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
    if temperature <= 0.0 {
        return best as u32;
    }
    let weight = |logit: &f32| f64::from((logit - logits[best]) / temperature).exp();
    let total: f64 = logits.iter().map(weight).sum();
    let mut left = f64::from(uniform) * total;
    for (token, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return token as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [0.0, 2f32.ln(), 0.0];
        assert_eq!([0.0, 0.24, 0.26, 0.74, 0.76].map(|u| draw(&logits, 1.0, u)), [0, 0, 1, 1, 2]);
        assert_eq!(draw(&logits, 0.0, 0.99), 1);
    }
}
