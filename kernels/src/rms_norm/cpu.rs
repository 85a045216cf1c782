use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::RmsNormKernel;
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::parallel::{ROW_BLOCK, sum_in_order};
use crate::simd::dot;

impl RmsNormKernel for Flex {
    fn forward(x: FlexTensor, gain: FlexTensor, eps: f64) -> FlexTensor {
        let (x, gain) = (contiguous(x), contiguous(gain));
        let ([rows, dim], gain) = (dims(&x), floats(&gain));
        let mut out = vec![0.0; rows * dim];
        out.par_chunks_mut(dim * ROW_BLOCK).zip(floats(&x).par_chunks(dim * ROW_BLOCK)).for_each(
            |(out, x)| {
                for (out, x) in out.chunks_mut(dim).zip(x.chunks(dim)) {
                    let inverse = inverse_rms(x, eps as f32);
                    for ((out, x), gain) in out.iter_mut().zip(x).zip(gain) {
                        *out = x * inverse * gain;
                    }
                }
            },
        );
        float_tensor(out, [rows, dim])
    }

    fn backward(
        x: FlexTensor,
        gain: FlexTensor,
        eps: f64,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let (x, gain, grad) = (contiguous(x), contiguous(gain), contiguous(grad));
        let ([rows, dim], gain) = (dims(&x), floats(&gain));
        let mut dx = vec![0.0; rows * dim];
        let dgain_parts: Vec<Vec<f32>> = dx
            .par_chunks_mut(dim * ROW_BLOCK)
            .zip(floats(&x).par_chunks(dim * ROW_BLOCK))
            .zip(floats(&grad).par_chunks(dim * ROW_BLOCK))
            .map(|((dx, x), grad)| {
                let mut dgain = vec![0.0; dim];
                let rows = dx.chunks_mut(dim).zip(x.chunks(dim)).zip(grad.chunks(dim));
                for ((dx, x), grad) in rows {
                    backward_row(x, gain, grad, eps as f32, dx, &mut dgain);
                }
                dgain
            })
            .collect();
        let dgain = sum_in_order(dim, dgain_parts);
        (float_tensor(dx, [rows, dim]), float_tensor(dgain, [dim]))
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    (dot(x, x) / x.len() as f32 + eps).sqrt().recip()
}

/// With r = 1 / rms: dx = r (gain dy - x r^2 mean(x gain dy)), dgain += x r dy.
fn backward_row(x: &[f32], gain: &[f32], dy: &[f32], eps: f32, dx: &mut [f32], dgain: &mut [f32]) {
    let inverse = inverse_rms(x, eps);
    let dot: f32 = x.iter().zip(gain).zip(dy).map(|((x, gain), dy)| x * gain * dy).sum();
    let pull = dot / x.len() as f32 * inverse * inverse;
    for i in 0..x.len() {
        dx[i] = inverse * (gain[i] * dy[i] - x[i] * pull);
        dgain[i] += x[i] * inverse * dy[i];
    }
}
