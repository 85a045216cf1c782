//! The parts of a step, each with its reference where it has one.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_kernels::attention::{self, AttentionOptions};
use fulmar_kernels::gated::{self, Activation};
use fulmar_kernels::grouped_swiglu::{self, Groups};
use fulmar_kernels::permute::{
    RowMap, combine_reference, combine_rows, dispatch_reference, dispatch_rows,
};
use fulmar_kernels::{combine_weights, cross_entropy, rms_norm, short_conv, silu, top_k};
use fulmar_model::config::{ConvSite, ModelConfig};
use fulmar_tests::made_up::batch;

use super::inputs::leaf;
use super::timing::best;

/// Values that a reference may write: beyond, it takes gigabytes or minutes.
const MOST_REFERENCE_VALUES: usize = 1 << 26;

/// Seconds of a part in a whole step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) secs: f64,
    pub(crate) reference: Option<f64>,
}

impl Part {
    pub(crate) fn new(name: &'static str, secs: f64) -> Self {
        Self { name, secs, reference: None }
    }

    /// A reference that was not run is not a number.
    fn with_reference(name: &'static str, [secs, reference]: [f64; 2]) -> Self {
        Self { name, secs, reference: Some(reference).filter(|secs| !secs.is_nan()) }
    }
}

/// Kernel and reference: the seconds of both, added up.
fn both(pairs: impl IntoIterator<Item = [f64; 2]>) -> [f64; 2] {
    pairs.into_iter().fold([0.0; 2], |sum, pair| [sum[0] + pair[0], sum[1] + pair[1]])
}

fn times(count: usize, pair: [f64; 2]) -> [f64; 2] {
    pair.map(|secs| count as f64 * secs)
}

pub(crate) fn all(model: &ModelConfig, rows: usize, repeats: usize) -> Vec<Part> {
    let step = Step { model, rows, tokens: rows * model.max_seq_len, repeats };
    vec![
        Part::new("matmul", step.matmuls()),
        Part::with_reference("attention", step.attentions()),
        Part::with_reference("experts", step.experts()),
        Part::with_reference("dispatch", step.dispatch()),
        Part::with_reference("router", step.router()),
        Part::with_reference("norms", step.norms()),
        Part::with_reference("gates", step.gates()),
        Part::with_reference("convolutions", step.convolutions()),
        Part::new("residual adds", step.adds()),
        Part::new("embedding", step.embedding()),
        Part::with_reference("loss", step.loss()),
    ]
}

struct Step<'a> {
    model: &'a ModelConfig,
    rows: usize,
    tokens: usize,
    repeats: usize,
}

impl Step<'_> {
    /// Seconds of `out` and of its backward pass.
    fn secs<const D: usize>(&self, out: impl Fn() -> Tensor<D>) -> f64 {
        best(self.repeats, || drop(out().sum().backward()))
    }

    /// Of a kernel and of its reference, which is not repeated so often.
    fn pair<const D: usize>(
        &self,
        out: impl Fn() -> Tensor<D>,
        reference: impl Fn() -> Tensor<D>,
    ) -> [f64; 2] {
        let reference = || drop(reference().sum().backward());
        [self.secs(out), best(self.repeats.div_ceil(4), reference)]
    }

    /// [`pair`](Self::pair), without the reference unless `fits`.
    fn pair_if<const D: usize>(
        &self,
        fits: bool,
        out: impl Fn() -> Tensor<D>,
        reference: impl Fn() -> Tensor<D>,
    ) -> [f64; 2] {
        if fits { self.pair(out, reference) } else { [self.secs(out), f64::NAN] }
    }

    /// Every dense product of a step but the loss's.
    fn matmuls(&self) -> f64 {
        let model = self.model;
        let (t, d) = (self.tokens, model.hidden_dim);
        let (q, kv) = (model.num_heads * model.head_dim, self.kv_width());
        let (rank, c) = (model.gated_norm_rank, model.latent_dim);
        let inner = model.shared_intermediate_dim;
        let layer = [
            (d, q, 1),
            (d, kv, 2),
            (q, d, 1),
            (d, model.num_heads, 1),
            (d, rank, 2),
            (rank, d, 2),
            (d, model.num_experts, 1),
            (d, c, 1),
            (c, d, 1),
            (d, inner, 2 * model.num_shared_experts),
            (inner, d, model.num_shared_experts),
        ];
        let secs = layer.map(|(rows, columns, count)| {
            let (x, w) = (leaf("x", [t, rows]), leaf("w", [rows, columns]));
            count as f64 * self.secs(|| x.clone().matmul(w.clone()))
        });
        model.num_layers as f64 * secs.iter().sum::<f64>()
    }

    fn kv_width(&self) -> usize {
        self.model.stored_kv_heads() * self.model.head_dim
    }

    fn segments(&self) -> Tensor<2, Int> {
        Tensor::zeros([self.rows, self.model.max_seq_len], &Device::flex())
    }

    fn attentions(&self) -> [f64; 2] {
        let model = self.model;
        let shape = |heads| [self.rows, model.max_seq_len, heads, model.head_dim];
        let q = leaf("q", shape(model.num_heads));
        let [k, v] = ["k", "v"].map(|name| leaf(name, shape(model.stored_kv_heads())));
        let layer = |index: usize| {
            let local = !model.is_global(index);
            let options = AttentionOptions {
                own_kv_heads: model.own_kv_heads(index),
                window: local.then_some(model.sliding_window),
                rope_base: local.then_some(model.rope_theta),
                qk_mult: model.qk_mult,
                norm_eps: 1e-6,
                exclusive_eps: 1e-6,
            };
            let inputs = || (q.clone(), k.clone(), v.clone(), self.segments());
            let kernel = || {
                let (q, k, v, segments) = inputs();
                attention::attention(q, k, v, segments, &options)
            };
            let reference = || {
                let (q, k, v, segments) = inputs();
                attention::reference(q, k, v, segments, &options)
            };
            // It holds several times the scores of all pairs of positions.
            let scores = self.rows * model.num_heads * model.max_seq_len.pow(2);
            self.pair_if(scores < MOST_REFERENCE_VALUES, kernel, reference)
        };
        both((0..model.num_layers).map(layer))
    }

    fn experts(&self) -> [f64; 2] {
        let model = self.model;
        let rows = self.tokens * model.num_experts_per_token;
        let (e, c, f) = (model.num_experts, model.latent_dim, model.intermediate_dim);
        let groups = Groups::from_counts(&vec![rows / e; e]);
        let x = leaf("x", [groups.rows(), c]);
        let [gate, up] = ["g", "u"].map(|name| leaf(name, [e, c, f]));
        let down = leaf("d", [e, f, c]);
        let inputs = || (x.clone(), gate.clone(), up.clone(), down.clone());
        let kernel = || {
            let (x, gate, up, down) = inputs();
            grouped_swiglu::grouped_swiglu(x, gate, up, down, &groups)
        };
        let reference = || {
            let (x, gate, up, down) = inputs();
            grouped_swiglu::reference(x, gate, up, down, &groups)
        };
        // It writes a gradient of all experts' size for each expert.
        let fits = e * e * c * f < MOST_REFERENCE_VALUES;
        times(model.num_layers, self.pair_if(fits, kernel, reference))
    }

    /// To the experts' rows and back, on one rank.
    fn dispatch(&self) -> [f64; 2] {
        let (model, k) = (self.model, self.model.num_experts_per_token);
        let rows = self.tokens * k;
        let row_of = (0..rows).map(|i| (i % self.tokens * k + i / self.tokens) as i32);
        let map = RowMap::from_rows(row_of.collect(), k, rows, &Device::flex());
        let (x, weights) =
            (leaf("x", [self.tokens, model.latent_dim]), leaf("w", [self.tokens, k]));
        let kernel = || combine_rows(dispatch_rows(x.clone(), &map), weights.clone(), &map);
        let reference = || {
            let rows = dispatch_reference(x.clone(), &map);
            combine_reference(vec![rows], weights.clone(), &map)
        };
        times(model.num_layers, self.pair(kernel, reference))
    }

    /// Choice and weights; the router's product counts as a product.
    fn router(&self) -> [f64; 2] {
        let (model, k) = (self.model, self.model.num_experts_per_token);
        let logits = leaf("logits", [self.tokens, model.num_experts]);
        let kernel = || {
            let top = top_k::top_k(logits.clone(), k);
            combine_weights::combine_weights(logits.clone(), top.selected, model.routing_sum)
        };
        let reference = || {
            let top = top_k::reference(logits.clone().inner(), k);
            combine_weights::reference(logits.clone(), top.selected, model.routing_sum)
        };
        times(model.num_layers, self.pair(kernel, reference))
    }

    /// Two in each layer and two at the ends; and that of the latent rows.
    fn norms(&self) -> [f64; 2] {
        let model = self.model;
        let norm = |width: usize| {
            let (x, gain) = (leaf("x", [self.tokens, width]), leaf("gain", [width]));
            let kernel = || rms_norm::rms_norm(x.clone(), gain.clone(), model.norm_eps);
            self.pair(kernel, || rms_norm::reference(x.clone(), gain.clone(), model.norm_eps))
        };
        let hidden = times(2 * model.num_layers + 2, norm(model.hidden_dim));
        both([hidden, times(model.num_layers, norm(model.latent_dim))])
    }

    /// Of the norms, the heads and the shared experts.
    fn gates(&self) -> [f64; 2] {
        let (model, t) = (self.model, self.tokens);
        let of = |rows: usize, width: usize, gate_width: usize, activation: Activation| {
            let (value, gate) = (leaf("v", [rows, width]), leaf("g", [rows, gate_width]));
            let kernel = || gated::gated(value.clone(), gate.clone(), activation);
            self.pair(kernel, || gated::reference(value.clone(), gate.clone(), activation))
        };
        let norms = 2 * model.num_layers + 2;
        let x = leaf("x", [t, model.gated_norm_rank]);
        let low_rank = self.pair(|| silu::silu(x.clone()), || silu::reference(x.clone()));
        let shared = model.num_layers * model.num_shared_experts;
        both([
            times(norms, low_rank),
            times(norms, of(t, model.hidden_dim, model.hidden_dim, Activation::Sigmoid)),
            times(
                model.num_layers,
                of(t * model.num_heads, model.head_dim, 1, Activation::TwiceSigmoid),
            ),
            times(shared, {
                let inner = model.shared_intermediate_dim;
                of(t, inner, inner, Activation::Silu)
            }),
        ])
    }

    fn convolutions(&self) -> [f64; 2] {
        let (model, s) = (self.model, self.model.max_seq_len);
        let widths = [
            (ConvSite::K, self.kv_width()),
            (ConvSite::V, self.kv_width()),
            (ConvSite::Attention, model.hidden_dim),
            (ConvSite::Mlp, model.hidden_dim),
        ];
        let used = widths.into_iter().filter(|(site, _)| model.has_conv(*site));
        let pairs = used.map(|(_, width)| {
            let (x, w) =
                (leaf("x", [self.rows, s, width]), leaf("w", [model.short_conv_taps, width]));
            let kernel = || short_conv::short_conv(x.clone(), w.clone(), self.segments());
            self.pair(kernel, || short_conv::reference(x.clone(), w.clone(), self.segments()))
        });
        times(model.num_layers, both(pairs))
    }

    /// Two in each layer and those of shared experts.
    fn adds(&self) -> f64 {
        let model = self.model;
        let [x, y] = ["x", "y"].map(|name| leaf(name, [self.tokens, model.hidden_dim]));
        let adds = model.num_layers * (2 + model.num_shared_experts);
        adds as f64 * self.secs(|| x.clone() + y.clone())
    }

    fn embedding(&self) -> f64 {
        let model = self.model;
        let table = leaf("e", [model.vocab_size, model.hidden_dim]);
        let ids = self.ids(batch(model, self.rows).tokens);
        self.secs(|| table.clone().select(0, ids.clone()))
    }

    fn ids(&self, ids: Vec<i32>) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(ids, [self.tokens]), &Device::flex())
    }

    fn loss(&self) -> [f64; 2] {
        let model = self.model;
        let hidden = leaf("h", [self.tokens, model.hidden_dim]);
        let head = leaf("w", [model.hidden_dim, model.vocab_size]);
        let batch = batch(model, self.rows);
        let targets = self.ids(batch.targets);
        let weight = TensorData::new(batch.loss_weight, [self.tokens]);
        let weight = Tensor::<1>::from_data(weight, &Device::flex());
        let inputs = || (hidden.clone(), head.clone(), targets.clone(), weight.clone());
        let kernel = || {
            let (hidden, head, targets, weight) = inputs();
            cross_entropy::cross_entropy(hidden, head, targets, weight, model.z_loss).total
        };
        self.pair(kernel, || {
            let (hidden, head, targets, weight) = inputs();
            cross_entropy::reference(hidden, head, targets, weight, model.z_loss).total
        })
    }
}
