use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::TopKKernel;
use crate::flex::{contiguous, dims, float_tensor, floats, int_tensor};
use crate::parallel::ROW_BLOCK;

impl TopKKernel for Flex {
    fn forward(scores: FlexTensor, k: usize) -> (FlexTensor, FlexTensor) {
        let scores = contiguous(scores);
        let [rows, columns] = dims(&scores);
        let (mut selected, mut next) = (vec![0; rows * k], vec![0.0; rows]);
        (selected.par_chunks_mut(ROW_BLOCK * k), next.par_chunks_mut(ROW_BLOCK))
            .into_par_iter()
            .zip(floats(&scores).par_chunks(ROW_BLOCK * columns))
            .for_each(|((selected, next), scores)| {
                let mut best = Vec::with_capacity(k + 2);
                let rows = selected.chunks_mut(k).zip(next).zip(scores.chunks(columns));
                for ((selected, next), scores) in rows {
                    *next = choose(scores, &mut best, selected);
                }
            });
        (int_tensor(selected, [rows, k]), float_tensor(next, [rows]))
    }
}

/// Writes the ids of the largest scores and returns the first that did not make it. `best` holds
/// the candidates seen so far, largest first.
fn choose(scores: &[f32], best: &mut Vec<(f32, i32)>, selected: &mut [i32]) -> f32 {
    if !scores.iter().fold(true, |finite, score| finite & score.is_finite()) {
        selected.fill(-1);
        return f32::NAN;
    }
    best.clear();
    let mut last = f32::NEG_INFINITY;
    for (id, &score) in scores.iter().enumerate() {
        // Not `>=`: of equal scores the earlier id stays ahead.
        if score > last {
            let place = best.iter().rposition(|&(other, _)| other >= score).map_or(0, |p| p + 1);
            best.insert(place, (score, id as i32));
            best.truncate(selected.len() + 1);
            if best.len() > selected.len() {
                last = best[selected.len()].0;
            }
        }
    }
    for (selected, (_, id)) in selected.iter_mut().zip(best.iter()) {
        *selected = *id;
    }
    last
}
