use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{CombineWeightsKernel, EPSILON};
use crate::flex::{contiguous, dims, expert_ids, float_tensor, floats};
use crate::parallel::ROW_BLOCK;

impl CombineWeightsKernel for Flex {
    fn forward(logits: FlexTensor, selected: FlexTensor, sum: f64) -> FlexTensor {
        let logits = contiguous(logits);
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        let selected = expert_ids("combine_weights", selected, e);
        let mut out = vec![0.0; t * k];
        if out.is_empty() || e == 0 {
            return float_tensor(out, [t, k]);
        }
        out.par_chunks_mut(k * ROW_BLOCK)
            .zip(floats(&logits).par_chunks(e * ROW_BLOCK))
            .zip(selected.par_chunks(k * ROW_BLOCK))
            .for_each(|((out, logits), selected)| {
                let rows = out.chunks_mut(k).zip(logits.chunks(e)).zip(selected.chunks(k));
                for ((out, logits), selected) in rows {
                    weigh(logits, selected, sum as f32, out);
                }
            });
        float_tensor(out, [t, k])
    }

    fn backward(
        logits: FlexTensor,
        selected: FlexTensor,
        sum: f64,
        grad: FlexTensor,
    ) -> FlexTensor {
        let (logits, grad) = (contiguous(logits), contiguous(grad));
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        let selected = expert_ids("combine_weights", selected, e);
        let mut dlogits = vec![0.0; t * e];
        if selected.is_empty() || e == 0 {
            return float_tensor(dlogits, [t, e]);
        }
        dlogits
            .par_chunks_mut(e * ROW_BLOCK)
            .zip(floats(&logits).par_chunks(e * ROW_BLOCK))
            .zip(selected.par_chunks(k * ROW_BLOCK))
            .zip(floats(&grad).par_chunks(k * ROW_BLOCK))
            .for_each(|(((dlogits, logits), selected), grad)| {
                let mut s = vec![0.0; k];
                let rows = dlogits.chunks_mut(e).zip(logits.chunks(e));
                let rows = rows.zip(selected.chunks(k)).zip(grad.chunks(k));
                for (((dlogits, logits), selected), grad) in rows {
                    let total = sigmoids(logits, selected, &mut s);
                    backward_row(sum as f32, total, &s, selected, grad, dlogits);
                }
            });
        float_tensor(dlogits, [t, e])
    }
}

/// The weights of one token's experts.
pub(crate) fn weigh(logits: &[f32], selected: &[i32], sum: f32, out: &mut [f32]) {
    let scale = sum / sigmoids(logits, selected, out);
    out.iter_mut().for_each(|s| *s *= scale);
}

/// Fills `s` with the sigmoids of the selected logits, 0 for no expert; returns their sum + 1e-9.
fn sigmoids(logits: &[f32], selected: &[i32], s: &mut [f32]) -> f32 {
    for (s, &id) in s.iter_mut().zip(selected) {
        *s = if id < 0 { 0.0 } else { 1.0 / (1.0 + (-logits[id as usize]).exp()) };
    }
    s.iter().sum::<f32>() + EPSILON as f32
}

/// With T the total: `dlogit_j = sum / T (dw_j - dw . s / T) s_j (1 - s_j)`; an id that occurs
/// twice gets both.
fn backward_row(sum: f32, total: f32, s: &[f32], ids: &[i32], dw: &[f32], dlogits: &mut [f32]) {
    // A slot without an expert has s = 0, but its gradient may be infinite or NaN.
    let chosen = || ids.iter().zip(s).zip(dw).filter(|((id, _), _)| **id >= 0);
    let pull = chosen().map(|((_, s), dw)| s * dw).sum::<f32>() / total;
    for ((&id, s), dw) in chosen() {
        dlogits[id as usize] += sum / total * (dw - pull) * s * (1.0 - s);
    }
}
