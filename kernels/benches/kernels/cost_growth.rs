//! A local layer's attention, with its projections, over rows of growing length: the same number
//! of tokens must cost about the same.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::attention::{AttentionOptions, attention};

use super::inputs::{forward_backward, ints, leaf};
use super::secs::Secs;
use super::settings::Settings;
use super::table::{Row, Work};

const WINDOW: usize = 128;
const HIDDEN: usize = 768;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 128;

struct Layer {
    x: Tensor<2>,
    /// Of queries, keys, values and the output.
    weights: [Tensor<2>; 4],
    segments: Tensor<2, Int>,
    rows: usize,
    s: usize,
}

impl Layer {
    fn new(tokens: usize, s: usize) -> Self {
        let rows = tokens / s;
        let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        Self {
            x: leaf([tokens, HIDDEN]),
            weights: [[HIDDEN, q], [HIDDEN, kv], [HIDDEN, kv], [q, HIDDEN]].map(leaf),
            segments: ints(vec![0; tokens], [rows, s]),
            rows,
            s,
        }
    }

    fn run(&self) -> impl Sized {
        let options = AttentionOptions {
            own_kv_heads: KV_HEADS,
            window: Some(WINDOW),
            rope_base: Some(10_000.0),
            qk_mult: 1.0,
            norm_eps: 1e-6,
            exclusive_eps: 1e-6,
        };
        let [w_q, w_k, w_v, w_o] = self.weights.each_ref();
        let heads = |w: &Tensor<2>, count| {
            self.x.clone().matmul(w.clone()).reshape([self.rows, self.s, count, HEAD_DIM])
        };
        let (q, k, v) = (heads(w_q, HEADS), heads(w_k, KV_HEADS), heads(w_v, KV_HEADS));
        let y = attention(q, k, v, self.segments.clone(), &options);
        let tokens = self.rows * self.s;
        forward_backward(y.reshape([tokens, HEADS * HEAD_DIM]).matmul(w_o.clone()))
    }

    fn work(&self) -> Work {
        let keys: usize = (0..self.s).map(|t| (t + 1).min(WINDOW)).sum();
        let attention = 14 * self.rows * keys * HEADS * HEAD_DIM;
        let weights: usize = self.weights.iter().map(|w| w.dims().iter().product::<usize>()).sum();
        Work::flop((attention + 6 * self.rows * self.s * weights) as f64)
    }
}

pub(crate) fn rows(settings: &Settings) -> Vec<Row> {
    let (lengths, tokens) =
        settings.pick((vec![256, 1_024, 4_096, 16_384], 16_384), (vec![64, 256], 256));
    let layers: Vec<Layer> = lengths.iter().map(|&s| Layer::new(tokens, s)).collect();
    // Turns, so that whatever disturbs the machine disturbs all lengths.
    let mut secs = vec![Secs::NEVER; layers.len()];
    for _ in 0..settings.pick(4, 1) {
        for (secs, layer) in secs.iter_mut().zip(&layers) {
            *secs = secs.min(settings.best(|| layer.run()));
        }
    }
    let first = secs[0].wall;
    let rows = layers.iter().zip(secs).map(|(layer, secs)| {
        let shape = format!("{} rows of S {} window {WINDOW}", layer.rows, layer.s);
        let note = format!(
            "{:.0} tokens/s, {:.2} of the first, target 1.2 at the ends",
            tokens as f64 / secs.wall,
            secs.wall / first
        );
        Row::new("cost_growth", shape, secs, layer.work()).note(note)
    });
    rows.collect()
}
