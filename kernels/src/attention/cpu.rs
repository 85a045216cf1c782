//! The CPU kernel: memory grows with s, never with its square.

mod backward;
mod bf16;
mod forward;
mod heads;
mod mask;
mod rows;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use self::backward::{Saved, attend_backward};
use self::forward::attend;
use self::heads::{Call, Geometry, Heads};
use self::rows::{Placement, exclude};
use super::{AttentionInputs, AttentionKernel, AttentionOptions, AttentionSaved};
use crate::flex::{contiguous, dims, float_tensor, floats, integers};

impl AttentionKernel for Flex {
    fn forward(inputs: AttentionInputs<Self>, options: &AttentionOptions) -> FlexTensor {
        Self::forward_saving(inputs, options).0
    }

    fn forward_saving(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
    ) -> (FlexTensor, Option<AttentionSaved<Self>>) {
        if inputs.q.dtype() == DType::BF16 {
            return (bf16::forward(inputs, options), None);
        }
        let arguments = Arguments::new(inputs, options);
        let call = arguments.call(options);
        let Geometry { b, s, h, j, a, own } = call.geometry;
        let parts: Vec<_> =
            (0..b * own).into_par_iter().map(|task| attend(&Heads::new(&call, task))).collect();
        let (mut out, mut y) = (vec![0.0; b * s * h * a], vec![0.0; b * s * h * a]);
        let mut inverse_sum = vec![0.0; b * s * h];
        let rows = out
            .par_chunks_mut(h * a)
            .zip(y.par_chunks_mut(h * a))
            .zip(inverse_sum.par_chunks_mut(h));
        let (groups, eps) = (call.groups(), options.exclusive_eps as f32);
        rows.enumerate().with_min_len(16).for_each(|(i, ((out, y), inverse_sum))| {
            let (row, t) = (i / s, i % s);
            for (own_head, group) in groups.iter().enumerate() {
                let (part, n) = (&parts[row * own + own_head], group.len());
                inverse_sum[group.clone()].copy_from_slice(&part.inverse_sum[t * n..][..n]);
                y[group.start * a..group.end * a].copy_from_slice(&part.y[t * n * a..][..n * a]);
                let v = &call.v[(i * j + own_head) * a..][..a];
                for head in group.clone() {
                    let head = head * a..(head + 1) * a;
                    exclude(&y[head.clone()], v, eps, &mut out[head]);
                }
            }
        });
        let saved = AttentionSaved {
            y: float_tensor(y, [b, s, h, a]),
            inverse_sum: float_tensor(inverse_sum, [b, s, h]),
        };
        (float_tensor(out, [b, s, h, a]), Some(saved))
    }

    fn backward(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
        saved: Option<AttentionSaved<Self>>,
        grad: FlexTensor,
    ) -> [FlexTensor; 3] {
        if inputs.q.dtype() == DType::BF16 {
            return bf16::backward(inputs, options, grad);
        }
        let (saved, grad) = (saved.expect("forward saves"), contiguous(grad));
        let arguments = Arguments::new(inputs, options);
        let call = arguments.call(options);
        let Geometry { b, s, h, j, a, own } = call.geometry;
        let saved = Saved {
            y: floats(&saved.y),
            inverse_sum: floats(&saved.inverse_sum),
            grad: floats(&grad),
        };
        let parts: Vec<_> = (0..b * own)
            .into_par_iter()
            .map(|task| attend_backward(&Heads::new(&call, task), saved))
            .collect();
        let mut dq = vec![0.0; b * s * h * a];
        let (mut dk, mut dv) = (vec![0.0; b * s * j * a], vec![0.0; b * s * j * a]);
        let rows =
            dq.par_chunks_mut(h * a).zip(dk.par_chunks_mut(j * a)).zip(dv.par_chunks_mut(j * a));
        let groups = call.groups();
        rows.enumerate().with_min_len(16).for_each(|(i, ((dq, dk), dv))| {
            let (row, t) = (i / s, i % s);
            for (own_head, group) in groups.iter().enumerate() {
                let (part, n) = (&parts[row * own + own_head], group.len());
                dq[group.start * a..group.end * a].copy_from_slice(&part.dq[t * n * a..][..n * a]);
                dk[own_head * a..][..a].copy_from_slice(&part.dk[t * a..][..a]);
                dv[own_head * a..][..a].copy_from_slice(&part.dv[t * a..][..a]);
            }
        });
        [
            float_tensor(dq, [b, s, h, a]),
            float_tensor(dk, [b, s, j, a]),
            float_tensor(dv, [b, s, j, a]),
        ]
    }
}

/// The inputs as contiguous tensors, which a [`Call`] borrows.
struct Arguments {
    geometry: Geometry,
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    segments: Vec<i32>,
}

impl Arguments {
    fn new(inputs: AttentionInputs<Flex>, options: &AttentionOptions) -> Self {
        let [b, s, h, a] = dims(&inputs.q);
        let [_, _, j, _] = dims(&inputs.k);
        Self {
            geometry: Geometry { b, s, h, j, a, own: options.own_kv_heads },
            q: contiguous(inputs.q),
            k: contiguous(inputs.k),
            v: contiguous(inputs.v),
            segments: integers(inputs.segment_ids),
        }
    }

    fn call<'a>(&'a self, options: &'a AttentionOptions) -> Call<'a> {
        Call {
            geometry: self.geometry,
            options,
            placement: Placement::new(self.geometry.s, self.geometry.a, options),
            q: floats(&self.q),
            k: floats(&self.k),
            v: floats(&self.v),
            segments: &self.segments,
        }
    }
}
