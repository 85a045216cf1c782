use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::TopKKernel;
use crate::flex::{contiguous, dims, float_tensor, floats, int_tensor};
use crate::parallel::ROW_BLOCK;

impl TopKKernel for Flex {
    fn forward(scores: FlexTensor, k: usize) -> (FlexTensor, FlexTensor) {
        let scores = contiguous(scores);
        let [t, e] = dims(&scores);
        let (mut selected, mut next) = (vec![0; t * k], vec![0.0; t]);
        selected
            .par_chunks_mut(k * ROW_BLOCK)
            .zip(next.par_chunks_mut(ROW_BLOCK))
            .zip(floats(&scores).par_chunks(e * ROW_BLOCK))
            .for_each(|((selected, next), scores)| {
                let mut best = Best::new(k + 1);
                let rows = selected.chunks_mut(k).zip(next).zip(scores.chunks(e));
                for ((selected, next), scores) in rows {
                    *next = best.choose(scores, selected);
                }
            });
        (int_tensor(selected, [t, k]), float_tensor(next, [t]))
    }
}

/// Scores that are looked at together; most hold nothing that is among the best.
const TOGETHER: usize = 16;

/// The best scores of a row so far, largest first.
pub(crate) struct Best {
    scores: Vec<f32>,
    ids: Vec<i32>,
}

impl Best {
    pub(crate) fn new(len: usize) -> Self {
        Self { scores: vec![0.0; len], ids: vec![-1; len] }
    }

    /// Fills `selected` with the ids of a row's best scores and returns the score after them; -1
    /// and NaN for a row that has no order.
    ///
    /// # Panics
    /// Unless `selected` is one shorter than what is kept.
    pub(crate) fn choose(&mut self, row: &[f32], selected: &mut [i32]) -> f32 {
        // Not `all`: without an early exit the loop vectorises.
        if row.iter().fold(true, |ordered, score| ordered & score.is_finite()) {
            self.scan(row);
            let last = self.scores.len() - 1;
            selected.copy_from_slice(&self.ids[..last]);
            self.scores[last]
        } else {
            selected.fill(-1);
            f32::NAN
        }
    }

    /// Ids rise, and an equal score does not displace one that is there: the lowest id stays first.
    fn scan(&mut self, row: &[f32]) {
        self.scores.fill(f32::NEG_INFINITY);
        let last = self.scores.len() - 1;
        for (chunk, scores) in row.chunks(TOGETHER).enumerate() {
            let least = self.scores[last];
            // As above.
            if scores.iter().fold(false, |any, score| any | (*score > least)) {
                for (i, &score) in scores.iter().enumerate() {
                    if score > self.scores[last] {
                        self.insert((chunk * TOGETHER + i) as i32, score);
                    }
                }
            }
        }
    }

    fn insert(&mut self, id: i32, score: f32) {
        let mut slot = self.scores.len() - 1;
        while slot > 0 && self.scores[slot - 1] < score {
            self.scores[slot] = self.scores[slot - 1];
            self.ids[slot] = self.ids[slot - 1];
            slot -= 1;
        }
        self.scores[slot] = score;
        self.ids[slot] = id;
    }
}
