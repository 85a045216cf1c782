use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{CombineWeightsKernel, EPSILON};
use crate::flex::{contiguous, dims, float_tensor, floats, integers};
use crate::parallel::ROW_BLOCK;
use crate::simd::sigmoid_in_place;

impl CombineWeightsKernel for Flex {
    fn forward(logits: FlexTensor, selected: FlexTensor, sum: f64) -> FlexTensor {
        let logits = contiguous(logits);
        let ([_, experts], [rows, k]) = (dims(&logits), dims(&selected));
        let (logits, selected) = (floats(&logits), ids(selected, experts));
        let mut out = vec![0.0; rows * k];
        out.par_chunks_mut((ROW_BLOCK * k).max(1))
            .zip(selected.par_chunks((ROW_BLOCK * k).max(1)))
            .zip(logits.par_chunks(ROW_BLOCK * experts))
            .for_each(|((out, selected), logits)| {
                let rows = out.chunks_mut(k).zip(selected.chunks(k)).zip(logits.chunks(experts));
                for ((out, selected), logits) in rows {
                    let total = sigmoids(logits, selected, out);
                    let scale = sum as f32 / total;
                    out.iter_mut().for_each(|weight| *weight *= scale);
                }
            });
        float_tensor(out, [rows, k])
    }

    fn backward(
        logits: FlexTensor,
        selected: FlexTensor,
        sum: f64,
        grad: FlexTensor,
    ) -> FlexTensor {
        let (logits, grad) = (contiguous(logits), contiguous(grad));
        let ([_, experts], [rows, k]) = (dims(&logits), dims(&selected));
        let (logits, selected, grad) = (floats(&logits), ids(selected, experts), floats(&grad));
        let mut dlogits = vec![0.0; rows * experts];
        dlogits
            .par_chunks_mut(ROW_BLOCK * experts)
            .zip(selected.par_chunks((ROW_BLOCK * k).max(1)))
            .zip(logits.par_chunks(ROW_BLOCK * experts))
            .zip(grad.par_chunks((ROW_BLOCK * k).max(1)))
            .for_each(|(((dlogits, selected), logits), grad)| {
                let mut s = vec![0.0; k];
                let rows = dlogits.chunks_mut(experts).zip(logits.chunks(experts));
                let picks = selected.chunks(k).zip(grad.chunks(k));
                for ((dlogits, logits), (selected, grad)) in rows.zip(picks) {
                    let total = sigmoids(logits, selected, &mut s);
                    backward_row(&s, selected, grad, (sum as f32, total), dlogits);
                }
            });
        float_tensor(dlogits, [rows, experts])
    }
}

/// The selected ids, each checked to be an expert or -1.
fn ids(selected: FlexTensor, experts: usize) -> Vec<i32> {
    let [_, k] = dims(&selected);
    let selected = integers(selected);
    if let Some(at) = selected.iter().position(|&id| id < -1 || id >= experts as i32) {
        let (id, row) = (selected[at], at / k);
        panic!("combine_weights: `selected` has id {id} in row {row}, needed -1 to {}", experts - 1)
    }
    selected
}

/// Writes the sigmoids of the selected logits, 0 for none, and returns their sum plus epsilon.
fn sigmoids(logits: &[f32], selected: &[i32], out: &mut [f32]) -> f32 {
    for (out, &id) in out.iter_mut().zip(selected) {
        *out = if id < 0 { f32::NEG_INFINITY } else { logits[id as usize] };
    }
    sigmoid_in_place(out);
    out.iter().sum::<f32>() + EPSILON
}

/// With w = sum s / total: ds = (dw - dw.s / total) sum / total, dlogit += ds s (1 - s).
fn backward_row(
    s: &[f32],
    selected: &[i32],
    dw: &[f32],
    (sum, total): (f32, f32),
    dlogits: &mut [f32],
) {
    let mean = dw.iter().zip(s).map(|(dw, s)| dw * s).sum::<f32>() / total;
    for ((&id, s), dw) in selected.iter().zip(s).zip(dw) {
        if id >= 0 {
            dlogits[id as usize] += sum / total * (dw - mean) * s * (1.0 - s);
        }
    }
}
