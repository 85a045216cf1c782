use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{Parts, RouteKernel};
use crate::combine_weights::weigh;
use crate::flex::{contiguous, dims, float_tensor, floats, int_tensor};
use crate::parallel::ROW_BLOCK;
use crate::top_k::Best;

impl RouteKernel for Flex {
    fn forward(logits: FlexTensor, bias: FlexTensor, k: usize, sum: f64) -> Parts<Self> {
        let (logits, bias) = (contiguous(logits), contiguous(bias));
        let [t, e] = dims(&logits);
        let (mut selected, mut weights) = (vec![0; t * k], vec![0.0; t * k]);
        let mut alpha = vec![0.0; t];
        selected
            .par_chunks_mut(k * ROW_BLOCK)
            .zip(weights.par_chunks_mut(k * ROW_BLOCK))
            .zip(alpha.par_chunks_mut(ROW_BLOCK))
            .zip(floats(&logits).par_chunks(e * ROW_BLOCK))
            .for_each(|(((selected, weights), alpha), logits)| {
                let (mut best, mut biased) = (Best::new(k + 1), vec![0.0; e]);
                let rows = selected.chunks_mut(k).zip(weights.chunks_mut(k)).zip(alpha);
                for (((selected, weights), alpha), logits) in rows.zip(logits.chunks(e)) {
                    for ((biased, logit), bias) in biased.iter_mut().zip(logits).zip(floats(&bias))
                    {
                        *biased = logit + bias;
                    }
                    *alpha = best.choose(&biased, selected);
                    weigh(logits, selected, sum as f32, weights);
                }
            });
        (int_tensor(selected, [t, k]), float_tensor(weights, [t, k]), float_tensor(alpha, [t]))
    }
}
