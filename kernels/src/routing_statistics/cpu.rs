use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType};
use rayon::prelude::*;

use super::{Parts, RoutingStatisticsKernel};
use crate::flex::{contiguous, dims, expert_ids, float_tensor, floats, int_tensor, integers};
use crate::simd::{Loop, MulAdd, max, vectorised};

/// Tokens summed at a time; the sums of blocks are added in order, so they do not depend on threads.
const BLOCK: usize = 256;

impl RoutingStatisticsKernel for Flex {
    fn forward(
        logits: FlexTensor,
        selected: FlexTensor,
        alpha: FlexTensor,
        token_valid: FlexTensor,
    ) -> Parts<Self> {
        let (logits, alpha) = (contiguous(logits), contiguous(alpha));
        let ([t, e], [_, k]) = (dims(&logits), dims(&selected));
        let selected = expert_ids("routing_statistics", selected, e);
        let token_valid = integers(token_valid);
        let of_block = |block: usize| {
            let mut sums = Sums::new(e);
            let mut shares = vec![0.0; e];
            let tokens = block * BLOCK..t.min((block + 1) * BLOCK);
            for token in tokens.filter(|token| token_valid[*token] != 0) {
                let logits = &floats(&logits)[token * e..][..e];
                sums.add_scores(logits, floats(&alpha)[token], &mut shares);
                sums.add_choice(&selected[token * k..][..k]);
            }
            sums
        };
        let blocks: Vec<Sums> = (0..t.div_ceil(BLOCK)).into_par_iter().map(of_block).collect();
        let total = blocks.iter().fold(Sums::new(e), Sums::with);
        let sums = FlexTensor::new(
            Bytes::from_elems(total.sums),
            Layout::contiguous([1, e + 1].into()),
            DType::F64,
        );
        (int_tensor(total.counts, [1, e + 1]), sums, float_tensor(total.bounds.into(), [1, 2]))
    }
}

/// Sums over some tokens.
struct Sums {
    counts: Vec<i32>,
    /// In f64: they grow with the tokens, and what is added is small.
    sums: Vec<f64>,
    bounds: [f32; 2],
}

impl Sums {
    fn new(e: usize) -> Self {
        Self { counts: vec![0; e + 1], sums: vec![0.0; e + 1], bounds: [f32::NEG_INFINITY; 2] }
    }

    /// `shares` is scratch `[e]`.
    fn add_scores(&mut self, logits: &[f32], alpha: f32, shares: &mut [f32]) {
        let max = max(logits);
        for (share, logit) in shares.iter_mut().zip(logits) {
            *share = (logit - max).exp();
        }
        // In order and apart from the loop above, whose calls would send it through memory.
        let total: f32 = shares.iter().sum();
        let (z, sums) = self.sums.split_last_mut().expect("the last column");
        for (sum, share) in sums.iter_mut().zip(shares.iter()) {
            *sum += f64::from(share / total);
        }
        let log_sum_exp = f64::from(max + total.ln());
        *z += log_sum_exp * log_sum_exp;
        self.bounds = wider(self.bounds, vectorised(Bounds { logits, alpha }));
    }

    fn add_choice(&mut self, selected: &[i32]) {
        for &id in selected.iter().filter(|id| **id >= 0) {
            self.counts[id as usize] += 1;
        }
        *self.counts.last_mut().expect("the last column") += 1;
    }

    fn with(mut self, other: &Self) -> Self {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, value)| *sum += value);
        self.bounds = wider(self.bounds, other.bounds);
        self
    }
}

/// The bounds of both; unlike [`f32::max`] it does not pass over NaN.
fn wider(left: [f32; 2], right: [f32; 2]) -> [f32; 2] {
    let max = |left: f32, right: f32| if left > right || left.is_nan() { left } else { right };
    [max(left[0], right[0]), max(left[1], right[1])]
}

/// The negative of the least margin of a token, and the greatest; NaN if one is not finite.
struct Bounds<'a> {
    logits: &'a [f32],
    alpha: f32,
}

/// Running bounds of a row.
const LANES: usize = 16;

struct Lanes {
    low: [f32; LANES],
    high: [f32; LANES],
    /// 0 while margins are finite, then NaN.
    nan: [f32; LANES],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, lane: usize, margin: f32) {
        self.low[lane] = if margin < self.low[lane] { margin } else { self.low[lane] };
        self.high[lane] = if margin > self.high[lane] { margin } else { self.high[lane] };
        self.nan[lane] += margin * 0.0;
    }
}

impl Loop for Bounds<'_> {
    type Output = [f32; 2];

    #[inline(always)]
    fn run<M: MulAdd>(self) -> [f32; 2] {
        let mut lanes = Lanes {
            low: [f32::INFINITY; LANES],
            high: [f32::NEG_INFINITY; LANES],
            nan: [0.0; LANES],
        };
        let (blocks, rest) = self.logits.as_chunks::<LANES>();
        for block in blocks {
            for (lane, logit) in block.iter().enumerate() {
                lanes.add(lane, logit - self.alpha);
            }
        }
        for (lane, logit) in rest.iter().enumerate() {
            lanes.add(lane, logit - self.alpha);
        }
        if lanes.nan.iter().any(|nan| nan.is_nan()) {
            return [f32::NAN; 2];
        }
        let low = lanes.low.iter().fold(f32::INFINITY, |low, v| low.min(*v));
        let high = lanes.high.iter().fold(f32::NEG_INFINITY, |high, v| high.max(*v));
        [-low, high]
    }
}
