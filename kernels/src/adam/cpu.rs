use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{AdamKernel, AdamOptions};
use crate::flex::{contiguous, floats, floats_mut, unshared};
use crate::hyperball::{block_squares, rate, rescale};
use crate::parallel::ELEMENT_BLOCK;

impl AdamKernel for Flex {
    fn step(tensors: [FlexTensor; 4], options: &AdamOptions) -> [FlexTensor; 3] {
        let [w, grad, m, v] = tensors;
        let grad = contiguous(grad);
        let [mut w, mut m, mut v] = [w, m, v].map(unshared);
        let (c, lr) = (Coefficients::new(options), options.lr as f32);
        let decay = (options.lr * options.weight_decay) as f32;
        let moments = floats_mut(&mut m).par_chunks_mut(ELEMENT_BLOCK).zip(
            floats_mut(&mut v)
                .par_chunks_mut(ELEMENT_BLOCK)
                .zip(floats(&grad).par_chunks(ELEMENT_BLOCK)),
        );
        floats_mut(&mut w).par_chunks_mut(ELEMENT_BLOCK).zip(moments).for_each(
            |(w, (m, (v, grad)))| {
                for (((w, m), v), grad) in w.iter_mut().zip(m).zip(v).zip(grad) {
                    c.update(m, v, *grad);
                    *w = *w - c.direction(*m, *v) * lr - *w * decay;
                }
            },
        );
        [w, m, v]
    }

    fn hyperball_step(tensors: [FlexTensor; 4], options: &AdamOptions) -> [FlexTensor; 3] {
        let [w, grad, m, v] = tensors;
        let grad = contiguous(grad);
        let [mut w, mut m, mut v] = [w, m, v].map(unshared);
        let c = Coefficients::new(options);
        let (w_squares, direction_squares) =
            update_moments(&c, floats(&w), floats(&grad), floats_mut(&mut m), floats_mut(&mut v));
        if let Some(rate) = rate(options.lr, w_squares, direction_squares) {
            let moved_squares = move_weights(&c, rate, floats_mut(&mut w), floats(&m), floats(&v));
            let scale = rescale(w_squares, moved_squares);
            floats_mut(&mut w).par_chunks_mut(ELEMENT_BLOCK).for_each(|w| {
                w.iter_mut().for_each(|w| *w *= scale);
            });
        }
        [w, m, v]
    }
}

/// Updates the moments; the sums of squares of the weights and of the direction.
fn update_moments(
    c: &Coefficients,
    w: &[f32],
    grad: &[f32],
    m: &mut [f32],
    v: &mut [f32],
) -> (f64, f64) {
    let moments = m.par_chunks_mut(ELEMENT_BLOCK).zip(v.par_chunks_mut(ELEMENT_BLOCK));
    let inputs = w.par_chunks(ELEMENT_BLOCK).zip(grad.par_chunks(ELEMENT_BLOCK));
    let parts: Vec<(f64, f64)> = moments
        .zip(inputs)
        .map_init(Vec::new, |directions, ((m, v), (w, grad))| {
            directions.clear();
            directions.extend(m.iter_mut().zip(v).zip(grad).map(|((m, v), grad)| {
                c.update(m, v, *grad);
                c.direction(*m, *v)
            }));
            (block_squares(w), block_squares(directions))
        })
        .collect();
    parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// `w -= rate direction`; the sum of squares of the result.
///
/// The direction is formed again from the moments: that is cheaper than a buffer of its size.
fn move_weights(c: &Coefficients, rate: f32, w: &mut [f32], m: &[f32], v: &[f32]) -> f64 {
    let moments = m.par_chunks(ELEMENT_BLOCK).zip(v.par_chunks(ELEMENT_BLOCK));
    let parts: Vec<f64> = w
        .par_chunks_mut(ELEMENT_BLOCK)
        .zip(moments)
        .map(|(w, (m, v))| {
            for ((w, m), v) in w.iter_mut().zip(m).zip(v) {
                *w -= c.direction(*m, *v) * rate;
            }
            block_squares(w)
        })
        .collect();
    parts.iter().sum()
}

/// The factors of one step, rounded to f32 once.
struct Coefficients {
    beta1: f32,
    beta2: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    first: f32,
    second: f32,
    eps: f32,
}

impl Coefficients {
    fn new(options: &AdamOptions) -> Self {
        let (first, second) = options.bias_corrections();
        Self {
            beta1: options.beta1 as f32,
            beta2: options.beta2 as f32,
            one_minus_beta1: (1.0 - options.beta1) as f32,
            one_minus_beta2: (1.0 - options.beta2) as f32,
            first: first as f32,
            second: second as f32,
            eps: options.eps as f32,
        }
    }

    fn update(&self, m: &mut f32, v: &mut f32, grad: f32) {
        *m = *m * self.beta1 + grad * self.one_minus_beta1;
        *v = *v * self.beta2 + grad * grad * self.one_minus_beta2;
    }

    fn direction(&self, m: f32, v: f32) -> f32 {
        m * self.first / ((v * self.second).sqrt() + self.eps)
    }
}
