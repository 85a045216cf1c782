//! k distinct experts for each token of a document.

use super::affinity::normalised;
use super::random::Stream;

/// Draws that a token may spend on experts it already has. Past it, each missing expert is found
/// by noise on all log-weights, which costs as much as thousands of draws and never repeats.
const MAX_DRAWS: usize = 512;

/// Draws experts by weight, without replacement.
///
/// Successive draws from Walker's alias table, where one that repeats an expert is drawn again:
/// the same law as the top k of log-weights plus Gumbel noise, at the price of a few table look-ups
/// instead of one logarithm an expert.
pub(super) struct Sampler {
    log_weights: Vec<f64>,
    /// Below it a slot stands for itself, from it on for its alias; in units of 2^-32.
    threshold: Vec<u32>,
    alias: Vec<u16>,
}

impl Sampler {
    pub(super) fn new(log_weights: Vec<f64>) -> Self {
        let num_experts = log_weights.len();
        let mut share: Vec<f64> =
            normalised(&log_weights).iter().map(|w| w * num_experts as f64).collect();
        let mut threshold = vec![u32::MAX; num_experts];
        let mut alias: Vec<u16> = (0..num_experts as u16).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..num_experts).partition(|&e| share[e] < 1.0);
        while let (Some(&from), Some(to)) = (large.last(), small.pop()) {
            threshold[to] = (share[to] * (1_u64 << 32) as f64) as u32;
            alias[to] = from as u16;
            share[from] -= 1.0 - share[to];
            if share[from] < 1.0 {
                large.pop();
                small.push(from);
            }
        }
        Self { log_weights, threshold, alias }
    }

    /// Fills `chosen` with distinct experts.
    pub(super) fn draw(&self, stream: &mut Stream, chosen: &mut [u16]) {
        let mut found = 0;
        for _ in 0..MAX_DRAWS {
            if found == chosen.len() {
                return;
            }
            let expert = self.draw_one(stream.bits());
            if !chosen[..found].contains(&expert) {
                chosen[found] = expert;
                found += 1;
            }
        }
        while found < chosen.len() {
            chosen[found] = self.draw_among_others(stream, &chosen[..found]);
            found += 1;
        }
    }

    fn draw_one(&self, bits: u64) -> u16 {
        let slot = (((bits >> 32) * self.threshold.len() as u64) >> 32) as usize;
        if (bits as u32) < self.threshold[slot] { slot as u16 } else { self.alias[slot] }
    }

    fn draw_among_others(&self, stream: &mut Stream, chosen: &[u16]) -> u16 {
        let mut best = (f64::NEG_INFINITY, 0);
        for (expert, log_weight) in (0..).zip(&self.log_weights) {
            let noisy = log_weight + stream.gumbel();
            if noisy > best.0 && !chosen.contains(&expert) {
                best = (noisy, expert);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of tokens that choose each expert.
    fn shares(weights: &[f64], k: usize) -> Vec<f64> {
        let sampler = Sampler::new(weights.iter().map(|w| w.ln()).collect());
        let (mut stream, mut chosen) = (Stream::at(3, &[]), vec![0; k]);
        let mut counts = vec![0_u32; weights.len()];
        for _ in 0..100_000 {
            sampler.draw(&mut stream, &mut chosen);
            chosen.iter().for_each(|&expert| counts[usize::from(expert)] += 1);
        }
        counts.iter().map(|&count| f64::from(count) / 1e5).collect()
    }

    #[test]
    fn one_draw_follows_the_weights() {
        let weights = [0.5, 0.1, 0.25, 0.05, 0.1];
        for (share, weight) in shares(&weights, 1).iter().zip(weights) {
            assert!((share - weight).abs() < 0.006, "{share} for {weight}");
        }
    }

    #[test]
    fn two_draws_are_without_replacement() {
        // P(first or second is e) = w + sum over f of w_f w_e / (1 - w_f), for 0.6, 0.3, 0.1:
        // 0.6 + 0.3 x 0.6/0.7 + 0.1 x 0.6/0.9, and so on.
        let exact = [0.923_81, 0.783_33, 0.292_86];
        for (share, exact) in shares(&[0.6, 0.3, 0.1], 2).iter().zip(exact) {
            assert!((share - exact).abs() < 0.006, "{share}, needed {exact}");
        }
    }

    #[test]
    fn a_document_of_one_expert_still_finds_k() {
        let mut log_weights = vec![-1_000.0; 12];
        log_weights[4] = 0.0;
        let mut chosen = vec![0; 12];
        Sampler::new(log_weights).draw(&mut Stream::at(1, &[]), &mut chosen);
        assert_eq!(chosen[0], 4);
        chosen.sort_unstable();
        assert!(chosen.into_iter().eq(0..12));
    }
}
