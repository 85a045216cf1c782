//! How the next token is drawn from a model's scores.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A distribution over the next token: the softmax of the scores over `temperature`, cut by `top_k`, then
/// by `top_p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the scores; 0 takes the best token, of equal ones that with the lowest id.
    pub temperature: f32,
    /// Best tokens that may be drawn; 0 for all.
    pub top_k: usize,
    /// Of these the fewest best ones whose share reaches this much may be drawn; 1 for all.
    pub top_p: f32,
}

impl Sampling {
    /// The best token each time.
    pub const GREEDY: Self = Self { temperature: 0.0, ..Self::ALL };
    /// The model's own distribution.
    pub const ALL: Self = Self { temperature: 1.0, top_k: 0, top_p: 1.0 };

    /// The first value that is out of range: its field, what it is and what is needed.
    pub fn problem(&self) -> Option<(&'static str, String, &'static str)> {
        let Self { temperature, top_p, .. } = *self;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Some(("temperature", temperature.to_string(), "a finite number, 0 or more"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Some(("top_p", top_p.to_string(), "a number above 0, up to 1"));
        }
        None
    }

    /// The token at `uniform` (0 to 1) of the distribution's cumulative sum, in the order of ids.
    ///
    /// # Panics
    /// If there are no scores.
    pub fn draw(&self, logits: &[f32], uniform: f32) -> u32 {
        let better = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
        let best = (0..logits.len()).min_by(better).expect("scores of tokens");
        if self.temperature <= 0.0 {
            return best as u32;
        }
        let weight =
            |token: &usize| f64::from((logits[*token] - logits[best]) / self.temperature).exp();
        let tokens = self.cut(logits.len(), better, weight);
        let total: f64 = tokens.iter().map(weight).sum();
        let mut left = f64::from(uniform) * total;
        for token in &tokens {
            left -= weight(token);
            if left < 0.0 {
                return *token as u32;
            }
        }
        best as u32
    }

    /// The tokens of `len` that may be drawn, by id.
    fn cut(
        &self,
        len: usize,
        better: impl Fn(&usize, &usize) -> Ordering,
        weight: impl Fn(&usize) -> f64,
    ) -> Vec<usize> {
        let mut tokens: Vec<usize> = (0..len).collect();
        if self.top_k == 0 && self.top_p >= 1.0 {
            return tokens;
        }
        tokens.sort_by(better);
        if self.top_k > 0 {
            tokens.truncate(self.top_k);
        }
        let wanted = f64::from(self.top_p) * tokens.iter().map(&weight).sum::<f64>();
        let mut reached = 0.0;
        let enough = tokens.iter().position(|token| {
            reached += weight(token);
            reached >= wanted
        });
        tokens.truncate(enough.map_or(len, |last| last + 1));
        tokens.sort_unstable();
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares 0.1, 0.4, 0.2 and 0.3.
    fn logits() -> [f32; 4] {
        [0.1f32, 0.4, 0.2, 0.3].map(f32::ln)
    }

    fn drawn(sampling: Sampling) -> Vec<u32> {
        let uniforms = (0..1000).map(|i| (i as f32 + 0.5) / 1000.0);
        uniforms.map(|uniform| sampling.draw(&logits(), uniform)).collect()
    }

    fn counts(sampling: Sampling) -> [usize; 4] {
        let drawn = drawn(sampling);
        [0, 1, 2, 3].map(|token| drawn.iter().filter(|one| **one == token).count())
    }

    #[test]
    fn draws_follow_the_distribution_in_the_order_of_ids() {
        assert_eq!(counts(Sampling::ALL), [100, 400, 200, 300]);
        assert!(drawn(Sampling::ALL).is_sorted());
        // Squares of the shares: 1, 16, 4 and 9 of 30.
        let colder = Sampling { temperature: 0.5, ..Sampling::ALL };
        assert_eq!(counts(colder), [33, 534, 133, 300]);
    }

    #[test]
    fn cuts_leave_the_best_and_keep_their_proportions() {
        assert_eq!(counts(Sampling { top_k: 2, ..Sampling::ALL }), [0, 571, 0, 429]);
        assert_eq!(counts(Sampling { top_k: 9, ..Sampling::ALL }), [100, 400, 200, 300]);
        // 0.4 and 0.3 are less than 0.75, and with 0.2 more.
        assert_eq!(counts(Sampling { top_p: 0.75, ..Sampling::ALL }), [0, 444, 223, 333]);
        assert_eq!(counts(Sampling { top_p: 1e-6, ..Sampling::ALL }), [0, 1000, 0, 0]);
        // Of the best two, 0.4 alone is 4/7.
        let both = Sampling { top_k: 2, top_p: 0.5, ..Sampling::ALL };
        assert_eq!(counts(both), [0, 1000, 0, 0]);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_ids() {
        assert_eq!(counts(Sampling::GREEDY), [0, 1000, 0, 0]);
        assert_eq!(Sampling::GREEDY.draw(&[1.0, 2.0, 2.0], 0.9), 1);
    }

    #[test]
    fn values_out_of_range_are_named() {
        assert_eq!(Sampling::ALL.problem(), None);
        assert_eq!(Sampling::GREEDY.problem(), None);
        let field = |sampling: Sampling| sampling.problem().expect("a problem").0;
        for temperature in [-0.1, f32::NAN, f32::INFINITY] {
            assert_eq!(field(Sampling { temperature, ..Sampling::ALL }), "temperature");
        }
        for top_p in [0.0, 1.1, f32::NAN] {
            assert_eq!(field(Sampling { top_p, ..Sampling::ALL }), "top_p");
        }
    }
}
