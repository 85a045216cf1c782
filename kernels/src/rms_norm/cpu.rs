use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::RmsNormKernel;
use crate::flex::{contiguous, dims, float_tensor, floats, floats_mut, unshared};
use crate::parallel::{ROW_BLOCK, sum_in_order};
use crate::simd::{Loop, MulAdd, dot, vectorised};

/// Running values of a sum over a row.
const LANES: usize = 16;

impl RmsNormKernel for Flex {
    fn forward(x: FlexTensor, gain: FlexTensor, eps: f64) -> FlexTensor {
        let (x, gain) = (contiguous(x), contiguous(gain));
        let ([rows, dim], gain) = (dims(&x), floats(&gain));
        let mut out = vec![0.0; rows * dim];
        let block = (dim * ROW_BLOCK).max(1);
        let blocks = out.par_chunks_mut(block).zip(floats(&x).par_chunks(block));
        blocks.for_each(|(out, x)| vectorised(Forward { x, gain, eps: eps as f32, out }));
        float_tensor(out, [rows, dim])
    }

    fn backward(
        x: FlexTensor,
        gain: FlexTensor,
        eps: f64,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let (x, gain, mut dx) = (contiguous(x), contiguous(gain), unshared(grad));
        let ([_, dim], gain) = (dims(&x), floats(&gain));
        let block = (dim * ROW_BLOCK).max(1);
        let blocks = floats_mut(&mut dx).par_chunks_mut(block).zip(floats(&x).par_chunks(block));
        let dgain_parts: Vec<Vec<f32>> = blocks
            .map(|(dx, x)| {
                let mut dgain = vec![0.0; dim];
                vectorised(Backward { x, gain, eps: eps as f32, dx, dgain: &mut dgain });
                dgain
            })
            .collect();
        let dgain = sum_in_order(dim, dgain_parts);
        (dx, float_tensor(dgain, [dim]))
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    (dot(x, x) / x.len() as f32 + eps).sqrt().recip()
}

struct Forward<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let dim = self.gain.len();
        for (out, x) in self.out.chunks_exact_mut(dim).zip(self.x.chunks_exact(dim)) {
            let inverse = inverse_rms(x, self.eps);
            for ((out, x), gain) in out.iter_mut().zip(x).zip(self.gain) {
                *out = x * inverse * gain;
            }
        }
    }
}

/// From dy to dx in place. With r = 1 / rms: dx = r (gain dy - x r^2 mean(x gain dy)) and
/// dgain += x r dy.
struct Backward<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    eps: f32,
    dx: &'a mut [f32],
    dgain: &'a mut [f32],
}

impl Loop for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let (gain, dim) = (self.gain, self.gain.len());
        for (dx, x) in self.dx.chunks_exact_mut(dim).zip(self.x.chunks_exact(dim)) {
            let inverse = inverse_rms(x, self.eps);
            let pull = product_sum::<M>([x, gain, dx]) / dim as f32 * inverse * inverse;
            let values = dx.iter_mut().zip(x).zip(gain).zip(self.dgain.iter_mut());
            for (((dx, x), gain), dgain) in values {
                let dy = *dx;
                *dgain = M::mul_add(x * inverse, dy, *dgain);
                *dx = inverse * (gain * dy - x * pull);
            }
        }
    }
}

/// The sum of `a[i] b[i] c[i]`.
#[inline(always)]
fn product_sum<M: MulAdd>([a, b, c]: [&[f32]; 3]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let [(a, a_rest), (b, b_rest), (c, c_rest)] = [a, b, c].map(<[f32]>::as_chunks::<LANES>);
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for (lane, ((a, b), c)) in lanes.iter_mut().zip(a.iter().zip(b).zip(c)) {
            *lane = M::mul_add(a * b, *c, *lane);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).zip(c_rest).map(|((a, b), c)| a * b * c).sum();
    lanes.iter().sum::<f32>() + rest
}
