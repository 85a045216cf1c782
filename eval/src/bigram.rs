//! An interpolated token bigram, the yardstick beside a small model.

use std::collections::HashMap;

use fulmar_data::Batch;

/// Pair counts interpolated with single counts by Witten and Bell's rule, which has no parameter
/// to tune: a context seen `n` times with `m` different followers gives `n / (n + m)` to its
/// own counts and the rest to the single counts, and these likewise to the uniform distribution.
///
/// # Source
/// Witten and Bell, "The zero-frequency problem", 1991, method C.
#[derive(Debug, Clone)]
pub struct TokenBigram {
    vocab_size: usize,
    /// Occurrences of each token as a target.
    singles: Vec<u64>,
    /// Occurrences of each token as a context.
    contexts: Vec<u64>,
    /// Different followers of each token.
    followers: Vec<u64>,
    pairs: HashMap<(i32, i32), u64>,
}

impl TokenBigram {
    /// Without counts.
    pub fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            singles: vec![0; vocab_size],
            contexts: vec![0; vocab_size],
            followers: vec![0; vocab_size],
            pairs: HashMap::new(),
        }
    }

    /// Counts the positions of a batch that have weight.
    ///
    /// # Panics
    /// If a token id is not below the vocabulary's size.
    pub fn count(&mut self, batch: &Batch) {
        let positions = batch.tokens.iter().zip(&batch.targets).zip(&batch.loss_weight);
        for ((&context, &target), _) in positions.filter(|(_, weight)| **weight > 0.0) {
            let pair = self.pairs.entry((context, target)).or_default();
            if *pair == 0 {
                self.followers[context as usize] += 1;
            }
            *pair += 1;
            self.contexts[context as usize] += 1;
            self.singles[target as usize] += 1;
        }
    }

    /// Nats of every target of a batch.
    pub fn nats(&self, batch: &Batch) -> Vec<f32> {
        let total: u64 = self.singles.iter().sum();
        let kinds = self.singles.iter().filter(|count| **count > 0).count() as f64;
        let uniform = 1.0 / self.vocab_size as f64;
        let positions = batch.tokens.iter().zip(&batch.targets);
        let probability = |(&context, &target): (&i32, &i32)| {
            let single = interpolate(self.singles[target as usize], total, kinds, uniform);
            let pair = self.pairs.get(&(context, target)).copied().unwrap_or(0);
            let followers = self.followers[context as usize] as f64;
            interpolate(pair, self.contexts[context as usize], followers, single)
        };
        positions.map(|position| -probability(position).ln() as f32).collect()
    }
}

/// `(count + kinds * lower) / (total + kinds)`, or `lower` where nothing was seen.
fn interpolate(count: u64, total: u64, kinds: f64, lower: f64) -> f64 {
    if total == 0 { lower } else { (count as f64 + kinds * lower) / (total as f64 + kinds) }
}
