//! Attention within a window: speed at the ladder's length, and memory as rows get longer.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::attention::{AttentionOptions, attention, reference};

use super::inputs::{forward_backward, ints, leaf};
use super::memory;
use super::settings::Settings;
use super::table::{Row, Work};

const HEAD_DIM: usize = 128;

/// One call's inputs.
pub(crate) struct Problem {
    s: usize,
    heads: usize,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    segments: Tensor<2, Int>,
    options: AttentionOptions,
}

impl Problem {
    fn new(s: usize, window: usize, heads: usize, kv_heads: usize) -> Self {
        let options = AttentionOptions {
            own_kv_heads: kv_heads,
            window: Some(window),
            rope_base: Some(10_000.0),
            qk_mult: 1.0,
            norm_eps: 1e-6,
            exclusive_eps: 1e-6,
        };
        Self {
            s,
            heads,
            q: leaf([1, s, heads, HEAD_DIM]),
            k: leaf([1, s, kv_heads, HEAD_DIM]),
            v: leaf([1, s, kv_heads, HEAD_DIM]),
            segments: ints(vec![0; s], [1, s]),
            options,
        }
    }

    fn run(&self) -> impl Sized {
        let (q, k, v) = (self.q.clone(), self.k.clone(), self.v.clone());
        forward_backward(attention(q, k, v, self.segments.clone(), &self.options))
    }

    fn run_reference(&self) -> impl Sized {
        let (q, k, v) = (self.q.clone(), self.k.clone(), self.v.clone());
        forward_backward(reference(q, k, v, self.segments.clone(), &self.options))
    }

    /// Keys that a query may read, on average.
    fn span(&self) -> f64 {
        let window = self.options.window.unwrap_or(self.s);
        let keys = |t: usize| (t + 1).min(window);
        (0..self.s).map(keys).sum::<usize>() as f64 / self.s as f64
    }

    /// 4 FLOP forward and 10 backward for each value of each pair of a query and its key; weights
    /// formed anew are not counted.
    fn work(&self) -> Work {
        Work::flop(14.0 * (HEAD_DIM * self.s * self.heads) as f64 * self.span())
    }
}

pub(crate) fn rows(settings: &Settings) -> Vec<Row> {
    let (s, window) = settings.pick((4_096, 2_048), (256, 128));
    let row = |heads: usize, kv_heads: usize| {
        let problem = Problem::new(s, window, heads, kv_heads);
        let secs = settings.best(|| problem.run());
        let shape = format!("S {s} window {window} heads {heads} kv {kv_heads} h {HEAD_DIM}");
        let row = Row::new("attention", shape, secs, problem.work()).target(0.4);
        let reference = settings.best(|| problem.run_reference());
        row.reference(reference, secs, "")
    };
    vec![row(1, 1), row(4, 4), row(4, 1)]
}

/// Memory of a forward and backward pass beside its inputs, a position.
pub(crate) fn memory_rows(settings: &Settings) -> Vec<Row> {
    let (lengths, window) =
        settings.pick(([4_096, 16_384, 65_536], 2_048), ([256, 512, 1_024], 128));
    let row = |s: usize| {
        let problem = Problem::new(s, window, 1, 1);
        let (secs, bytes) = memory::beside(|| problem.run());
        let note = format!("{:.0} bytes a position", bytes as f64 / s as f64);
        Row::new("attention_memory", format!("S {s} window {window}"), secs, problem.work())
            .note(note)
    };
    lengths.into_iter().map(row).collect()
}
