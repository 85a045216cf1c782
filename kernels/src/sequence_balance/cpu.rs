use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{EPSILON, SequenceBalanceKernel};
use crate::flex::{contiguous, dims, expert_ids, float_tensor, floats, integers};
use crate::parallel::{ROW_BLOCK, for_each_row};
use crate::simd::{dot, sigmoid_in_place, sum};

impl SequenceBalanceKernel for Flex {
    fn forward(
        logits: FlexTensor,
        selected: FlexTensor,
        token_valid: FlexTensor,
        seq_len: usize,
    ) -> FlexTensor {
        let logits = contiguous(logits);
        let [_, e] = dims(&logits);
        let rows = Rows::new(selected, token_valid, e, seq_len);
        // The row's loss is the mean over its tokens of the sum over e of f_e s_e / S.
        let mut of_tokens = vec![0.0; rows.token_valid.len()];
        of_tokens.par_chunks_mut(ROW_BLOCK).enumerate().for_each(|(block, of_tokens)| {
            let mut s = vec![0.0; e];
            for (i, value) in of_tokens.iter_mut().enumerate() {
                let token = block * ROW_BLOCK + i;
                if let Some((f, _)) = rows.of(token) {
                    *value = shares(&floats(&logits)[token * e..][..e], f, &mut s).pull;
                }
            }
        });
        let losses = of_tokens.chunks(seq_len).zip(&rows.num_valid).map(|(of_tokens, n)| {
            let sum: f64 = of_tokens.iter().map(|value| f64::from(*value)).sum();
            (sum / f64::from(*n)) as f32
        });
        let losses: Vec<f32> = losses.collect();
        let shape = [losses.len()];
        float_tensor(losses, shape)
    }

    fn backward(
        logits: FlexTensor,
        selected: FlexTensor,
        token_valid: FlexTensor,
        seq_len: usize,
        grad: FlexTensor,
    ) -> FlexTensor {
        let (logits, grad) = (contiguous(logits), contiguous(grad));
        let [t, e] = dims(&logits);
        let rows = Rows::new(selected, token_valid, e, seq_len);
        let mut dlogits = vec![0.0; t * e];
        for_each_row(&mut dlogits, e, |token, dlogits| {
            if let Some((f, n)) = rows.of(token) {
                let Shares { total, pull } = shares(&floats(&logits)[token * e..][..e], f, dlogits);
                let scale = floats(&grad)[token / seq_len] / (n * total);
                for (s, f) in dlogits.iter_mut().zip(f) {
                    *s = scale * (f - pull) * *s * (1.0 - *s);
                }
            }
        });
        float_tensor(dlogits, [t, e])
    }
}

/// What the choices of each row's valid tokens say.
struct Rows {
    token_valid: Vec<i32>,
    num_experts: usize,
    seq_len: usize,
    /// Valid tokens of each row, 1 where there are none, as the divisor of a mean.
    num_valid: Vec<f32>,
    /// `f` [rows, e].
    f: Vec<f32>,
}

impl Rows {
    fn new(selected: FlexTensor, token_valid: FlexTensor, e: usize, seq_len: usize) -> Self {
        let [_, k] = dims(&selected);
        let selected = expert_ids("sequence_balance", selected, e);
        let token_valid = integers(token_valid);
        let rows = token_valid.len() / seq_len;
        let (mut f, mut num_valid) = (vec![0.0; rows * e], vec![0.0f32; rows]);
        for (token, ids) in selected.chunks(k).enumerate().filter(|(t, _)| token_valid[*t] != 0) {
            let row = token / seq_len;
            num_valid[row] += 1.0;
            for &id in ids.iter().filter(|id| **id >= 0) {
                f[row * e + id as usize] += 1.0;
            }
        }
        num_valid.iter_mut().for_each(|n| *n = n.max(1.0));
        for (i, f) in f.iter_mut().enumerate() {
            *f *= e as f32 / (k as f32 * num_valid[i / e]);
        }
        Self { token_valid, num_experts: e, seq_len, num_valid, f }
    }

    /// `f` `[e]` of the token's row and the row's valid tokens; nothing for padding.
    fn of(&self, token: usize) -> Option<(&[f32], f32)> {
        let row = token / self.seq_len;
        let f = &self.f[row * self.num_experts..][..self.num_experts];
        (self.token_valid[token] != 0).then(|| (f, self.num_valid[row]))
    }
}

struct Shares {
    /// S, the sum of all s + 1e-9.
    total: f32,
    /// The sum over e of `f_e s_e / S`.
    pull: f32,
}

/// Fills `s` with the sigmoids of a token's logits.
///
/// With g the gradient of the row's loss: `dlogit_e = g / (n S) (f_e - pull) s_e (1 - s_e)`.
fn shares(logits: &[f32], f: &[f32], s: &mut [f32]) -> Shares {
    s.copy_from_slice(logits);
    sigmoid_in_place(s);
    let total = sum(s) + EPSILON as f32;
    Shares { total, pull: dot(f, s) / total }
}
