//! Continuations of prompts, several in one batch.

use fulmar_ep::TokenDispatcher;
use fulmar_model::moe::router::Router;
use fulmar_model::{DecodeCache, Prompt};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::EvalError;
use crate::sampling::Sampling;
use crate::scorer::ModelScorer;

/// How prompts are continued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Generation {
    /// New tokens a prompt, at most.
    pub max_new_tokens: usize,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// Seed of the draws of the first prompt; that of each other one is one more.
    pub seed: u64,
    /// Tokens in the model's row. A text that has filled it goes on from its newer half alone.
    pub seq_len: usize,
    /// Ends a continuation, and is no part of it.
    pub end_id: u32,
}

/// The tokens that follow each prompt, without it.
///
/// A prompt's draws depend on its seed alone, and what it is continued with on the other prompts only by
/// the order of f32 sums. Where the model lies on several shards, each of them calls this with the same
/// prompts, and the first one's draws hold for all. `before` is called before each forward pass.
///
/// # Errors
/// [`EvalError::Prompt`] for a prompt that is empty or fills the row, or the forward pass's.
pub fn generate<D: TokenDispatcher, R: Router>(
    scorer: &ModelScorer<'_, D, R>,
    prompts: &[Vec<u32>],
    plan: &Generation,
    before: &mut dyn FnMut(),
) -> Result<Vec<Vec<u32>>, EvalError> {
    let longest = plan.seq_len.saturating_sub(1);
    let fits = |prompt: &&Vec<u32>| (1..=longest).contains(&prompt.len());
    if let Some(prompt) = prompts.iter().find(|prompt| !fits(prompt)) {
        return Err(EvalError::Prompt { found: prompt.len(), needed: longest });
    }
    let texts = prompts.iter().zip(plan.seed..);
    let mut texts: Vec<Text> = texts.map(|(prompt, seed)| Text::new(prompt, seed)).collect();
    let mut batch = Batch::default();
    for left in (1..=plan.max_new_tokens).rev() {
        if texts.iter().all(|text| text.ended) {
            break;
        }
        before();
        let logits = batch.next_logits(scorer, &mut texts, plan.seq_len, left)?;
        let scored = batch.rows.iter().zip(&logits);
        let draws = scored.map(|(row, logits)| u64::from(texts[*row].draw(logits, &plan.sampling)));
        let draws = scorer.shards().gather_u64("sampled tokens", &draws.collect::<Vec<_>>())?;
        for (row, draw) in batch.rows.iter().zip(&draws[0]) {
            texts[*row].push(*draw as u32, plan.end_id);
        }
    }
    Ok(texts.into_iter().map(Text::continuation).collect())
}

/// A prompt with what it was continued with.
struct Text {
    tokens: Vec<u32>,
    prompt_len: usize,
    /// The first token that the model still reads.
    read_from: usize,
    generator: ChaCha8Rng,
    ended: bool,
}

impl Text {
    fn new(prompt: &[u32], seed: u64) -> Self {
        Self {
            tokens: prompt.to_vec(),
            prompt_len: prompt.len(),
            read_from: 0,
            generator: ChaCha8Rng::seed_from_u64(seed),
            ended: false,
        }
    }

    /// Of a text that has ended nothing is drawn.
    fn draw(&mut self, logits: &[f32], sampling: &Sampling) -> u32 {
        if self.ended { 0 } else { sampling.draw(logits, self.generator.random()) }
    }

    fn push(&mut self, token: u32, end_id: u32) {
        self.ended |= token == end_id;
        if !self.ended {
            self.tokens.push(token);
        }
    }

    /// What the model reads of it as a row of at most `seq_len` tokens.
    fn row(&mut self, seq_len: usize) -> &[u32] {
        if self.tokens.len() - self.read_from > seq_len {
            self.read_from = self.tokens.len() - seq_len.div_ceil(2);
        }
        &self.tokens[self.read_from..]
    }

    fn continuation(mut self) -> Vec<u32> {
        self.tokens.split_off(self.prompt_len)
    }
}

/// The texts that are read together.
#[derive(Default)]
struct Batch {
    /// Indices of texts.
    rows: Vec<usize>,
    cache: Option<DecodeCache>,
}

impl Batch {
    /// Scores for the next token of each row, of which `left` more follow at most.
    fn next_logits<D: TokenDispatcher, R: Router>(
        &mut self,
        scorer: &ModelScorer<'_, D, R>,
        texts: &mut [Text],
        seq_len: usize,
        left: usize,
    ) -> Result<Vec<Vec<f32>>, EvalError> {
        if let Some(cache) = self.cache.as_mut().filter(|cache| !cache.is_full()) {
            let rows = self.rows.iter().map(|row| &texts[*row]);
            let newest: Vec<u32> =
                rows.clone().map(|text| text.tokens[text.tokens.len() - 1]).collect();
            let live: Vec<bool> = rows.map(|text| !text.ended).collect();
            return scorer.read_on(cache, &newest, &live);
        }
        self.rows = (0..texts.len()).filter(|row| !texts[*row].ended).collect();
        let prompts = self.rows.iter().map(|row| Prompt::of_document(texts[*row].row(seq_len)));
        let prompts: Vec<Prompt> = prompts.collect();
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        // The last token that is drawn is not read.
        let (logits, cache) = scorer.read(&prompts, (longest + left - 1).min(seq_len))?;
        self.cache = Some(cache);
        Ok(logits)
    }
}
