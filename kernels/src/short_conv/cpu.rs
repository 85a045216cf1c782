use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::ShortConvKernel;
use crate::flex::{contiguous, dims, float_tensor, floats, integers};
use crate::parallel::{ROW_BLOCK, for_each_row, sum_in_order};

impl ShortConvKernel for Flex {
    fn forward(x: FlexTensor, weight: FlexTensor, segment_ids: FlexTensor) -> FlexTensor {
        let (x, weight) = (contiguous(x), contiguous(weight));
        let (shape, taps) = (dims(&x), Taps::new(&x, &weight, segment_ids));
        let ([b, s, d], x, weight) = (shape, floats(&x), floats(&weight));
        let mut out = vec![0.0; b * s * d];
        for_each_row(&mut out, d, |t, out| {
            for lag in 0..taps.num_taps {
                if taps.reaches_back(t, lag) {
                    add_product(out, row(weight, lag, d), row(x, t - lag, d));
                }
            }
        });
        float_tensor(out, shape)
    }

    fn backward(
        x: FlexTensor,
        weight: FlexTensor,
        segment_ids: FlexTensor,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let (x, weight, grad) = (contiguous(x), contiguous(weight), contiguous(grad));
        let (shape, taps) = (dims(&x), Taps::new(&x, &weight, segment_ids));
        let ([b, s, d], x, weight, grad) = (shape, floats(&x), floats(&weight), floats(&grad));
        let mut dx = vec![0.0; b * s * d];
        if d == 0 {
            return (float_tensor(dx, shape), float_tensor(vec![], [taps.num_taps, d]));
        }
        let dweight_parts: Vec<Vec<f32>> = dx
            .par_chunks_mut(d * ROW_BLOCK)
            .enumerate()
            .map(|(block, dx)| {
                let mut dweight = vec![0.0; taps.num_taps * d];
                for (i, dx) in dx.chunks_mut(d).enumerate() {
                    let t = block * ROW_BLOCK + i;
                    for (lag, dweight) in dweight.chunks_mut(d).enumerate() {
                        if taps.reaches_forward(t, lag) {
                            add_product(dx, row(weight, lag, d), row(grad, t + lag, d));
                        }
                        if taps.reaches_back(t, lag) {
                            add_product(dweight, row(x, t - lag, d), row(grad, t, d));
                        }
                    }
                }
                dweight
            })
            .collect();
        let dweight = sum_in_order(taps.num_taps * d, dweight_parts);
        (float_tensor(dx, shape), float_tensor(dweight, [taps.num_taps, d]))
    }
}

/// Which taps stay in the row and the document; positions count through all rows.
struct Taps {
    num_taps: usize,
    row_len: usize,
    segment_ids: Vec<i32>,
}

impl Taps {
    fn new(x: &FlexTensor, weight: &FlexTensor, segment_ids: FlexTensor) -> Self {
        let ([_, row_len, _], [num_taps, _]) = (dims(x), dims(weight));
        Self { num_taps, row_len, segment_ids: integers(segment_ids) }
    }

    fn reaches_back(&self, t: usize, lag: usize) -> bool {
        lag <= t % self.row_len && self.segment_ids[t - lag] == self.segment_ids[t]
    }

    fn reaches_forward(&self, t: usize, lag: usize) -> bool {
        t % self.row_len + lag < self.row_len && self.segment_ids[t + lag] == self.segment_ids[t]
    }
}

fn row(values: &[f32], index: usize, d: usize) -> &[f32] {
    &values[index * d..(index + 1) * d]
}

fn add_product(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out += a * b;
    }
}
