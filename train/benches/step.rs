//! Where the time of a training step goes, for the proxy shape: 4 layers, 48 experts, width 192,
//! 8 rows of 256 tokens, f32, with optimizer.
//!
//! ```text
//! cargo bench --workspace --bench step
//! ```
//!
//! The parts are timed one by one, each forward and backward at its shape in the step and times
//! the number of layers; the whole step is timed as it is. What the parts do not explain is
//! `other`. The last line is `tokens/s: N`.

use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::transport::Group;
use fulmar_ep::{Local, World};
use fulmar_kernels::attention::{AttentionOptions, attention};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::cross_entropy::cross_entropy;
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu};
use fulmar_kernels::top_k::top_k;
use fulmar_model::config::{ModelConfig, RouterDot};
use fulmar_model::{Initializer, Preset};
use fulmar_train::RunConfig;
use fulmar_train::config::BatchConfig;
use fulmar_train::optim::{Gradients, Optimizer};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;

/// Timed repetitions; the median is reported.
const REPEATS: usize = 7;
const ROWS: usize = 8;

fn main() {
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let repeats = if std::env::args().any(|arg| arg == "--test") { 1 } else { REPEATS };
    let config = proxy();
    let mut step = WholeStep::new(&config);
    step.once();
    let peak = gemm_gflops(repeats);
    let total = median(repeats, || step.once());
    let optimizer = step.optimizer_secs(repeats);
    let parts = [
        ("matmul", matmuls(&config.model, repeats)),
        ("attention", attentions(&config.model, repeats)),
        ("experts", experts(&config.model, repeats)),
        ("router", router(&config.model, repeats)),
        ("loss", loss(&config.model, repeats)),
        ("optimizer", optimizer),
    ];
    println!("{:<12}{:>10}{:>9}", "part", "ms", "share");
    let explained: f64 = parts.iter().map(|(_, secs)| secs).sum();
    for (name, secs) in parts.into_iter().chain([("other", total - explained)]) {
        println!("{name:<12}{:>10.2}{:>8.1}%", secs * 1e3, 100.0 * secs / total);
    }
    println!("{:<12}{:>10.2}", "step", total * 1e3);
    let tokens = config.tokens_per_step();
    let gflops = config.model.step_flops(tokens) / total / 1e9;
    println!("model GFLOP/s: {gflops:.1}, of {peak:.1} that f32 products of 1024 reach");
    println!("tokens/s: {:.0}", tokens as f64 / total);
}

fn proxy() -> RunConfig {
    let model = ModelConfig {
        hidden_dim: 192,
        num_layers: 4,
        num_heads: 3,
        head_dim: 64,
        num_experts: 48,
        intermediate_dim: 96,
        latent_dim: 96,
        shared_intermediate_dim: 96,
        gated_norm_rank: 32,
        quantile_bins: 1_000,
        router_dot: RouterDot::F32,
        ..Preset::MiniD96.config()
    };
    let mut config = RunConfig::preset(Preset::MiniD96);
    config.model = model;
    config.batch = BatchConfig { rows: ROWS as u64, micro_rows: None };
    config.schedule.steps = 1_000;
    config.validate().expect("a valid shape");
    config
}

/// A whole training step on one repeated batch.
struct WholeStep<'a> {
    config: &'a RunConfig,
    state: TrainState,
    batch: Batch,
    device: Device,
}

impl<'a> WholeStep<'a> {
    fn new(config: &'a RunConfig) -> Self {
        let device = Device::flex();
        let state = TrainState::new(config, &World::solo(), &device).expect("state");
        Self { config, state, batch: batch(&config.model), device }
    }

    fn once(&mut self) {
        let dispatcher = Local::new(self.config.model.num_experts);
        let balancing = balancing(self.config);
        let world = World::solo();
        let context = StepContext::new(self.config, &world, &dispatcher, &balancing, &self.device);
        let rates = self.state.optimizer.rates(0.5, 0.1);
        let report = self.state.step(&self.batch, rates, &context).expect("step");
        assert!(report.updated, "a step on random tokens is finite");
    }

    /// The update alone, with the weights as gradients.
    fn optimizer_secs(&self, repeats: usize) -> f64 {
        let table = self.state.optimizer.table().clone();
        let peaks = *self.state.optimizer.peaks();
        let mut optimizer = Optimizer::new(table, self.config.optimizer.clone(), peaks);
        let rates = optimizer.rates(0.5, 0.1);
        let mut model = self.state.model.clone();
        let mut secs = Vec::new();
        for _ in 0..=repeats {
            let gradients = Gradients::of_weights(&model);
            let started = Instant::now();
            optimizer.step(&mut model, gradients, rates, &Group::solo()).expect("update");
            secs.push(started.elapsed().as_secs_f64());
        }
        // The first update allocates the moments.
        middle(secs.split_off(1))
    }
}

fn batch(model: &ModelConfig) -> Batch {
    let (s, v) = (model.max_seq_len, model.vocab_size as u64);
    let len = ROWS * s;
    let token = |i: usize| (i as u64 * 2_654_435_761 % v) as i32;
    Batch {
        num_rows: ROWS,
        seq_len: s,
        first_row: 0,
        tokens: (0..len).map(token).collect(),
        targets: (0..len).map(|i| token(i + 1)).collect(),
        loss_weight: (0..len).map(|i| if (i + 1) % s == 0 { 0.0 } else { 1.0 }).collect(),
        segment_ids: vec![0; len],
        token_valid: vec![true; len],
        cells: vec![0; ROWS],
    }
}

/// A leaf of random values.
fn leaf<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
    let device = Device::flex();
    let init = Initializer::new(1, 0.07, &device);
    let flat = init.matrix(name, [1, shape.iter().product()]).val().inner();
    Tensor::from_inner(flat.reshape(shape)).require_grad()
}

/// Seconds of `out` and of its backward pass.
fn forward_backward<const D: usize>(repeats: usize, out: impl Fn() -> Tensor<D>) -> f64 {
    median(repeats, || {
        out().sum().backward();
    })
}

/// Every dense product of a step but the loss's.
fn matmuls(model: &ModelConfig, repeats: usize) -> f64 {
    let (t, d) = (ROWS * model.max_seq_len, model.hidden_dim);
    let (q, kv) = (model.num_heads * model.head_dim, model.stored_kv_heads() * model.head_dim);
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
        count as f64 * forward_backward(repeats, || x.clone().matmul(w.clone()))
    });
    model.num_layers as f64 * secs.iter().sum::<f64>()
}

fn attentions(model: &ModelConfig, repeats: usize) -> f64 {
    let s = model.max_seq_len;
    let shape = |heads| [ROWS, s, heads, model.head_dim];
    let (q, k) = (leaf("q", shape(model.num_heads)), leaf("k", shape(model.stored_kv_heads())));
    let v = leaf("v", shape(model.stored_kv_heads()));
    let segments = Tensor::<2, Int>::zeros([ROWS, s], &Device::flex());
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
        let out = || attention(q.clone(), k.clone(), v.clone(), segments.clone(), &options);
        forward_backward(repeats, out)
    };
    (0..model.num_layers).map(layer).sum()
}

fn experts(model: &ModelConfig, repeats: usize) -> f64 {
    let rows = ROWS * model.max_seq_len * model.num_experts_per_token;
    let (e, c, f) = (model.num_experts, model.latent_dim, model.intermediate_dim);
    let groups = Groups::from_counts(&vec![rows / e; e]);
    let x = leaf("x", [groups.rows(), c]);
    let (gate, up, down) = (leaf("g", [e, c, f]), leaf("u", [e, c, f]), leaf("d", [e, f, c]));
    let out = || grouped_swiglu(x.clone(), gate.clone(), up.clone(), down.clone(), &groups);
    model.num_layers as f64 * forward_backward(repeats, out)
}

/// Choice and weights; the router's product counts as a product.
fn router(model: &ModelConfig, repeats: usize) -> f64 {
    let logits = leaf("logits", [ROWS * model.max_seq_len, model.num_experts]);
    let out = || {
        let top = top_k(logits.clone(), model.num_experts_per_token);
        combine_weights(logits.clone(), top.selected, model.routing_sum)
    };
    model.num_layers as f64 * forward_backward(repeats, out)
}

fn loss(model: &ModelConfig, repeats: usize) -> f64 {
    let (t, v) = (ROWS * model.max_seq_len, model.vocab_size);
    let (hidden, head) = (leaf("h", [t, model.hidden_dim]), leaf("w", [model.hidden_dim, v]));
    let batch = batch(model);
    let device = Device::flex();
    let targets = Tensor::<1, Int>::from_data(TensorData::new(batch.targets, [t]), &device);
    let weight = Tensor::<1>::from_data(TensorData::new(batch.loss_weight, [t]), &device);
    forward_backward(repeats, || {
        let (targets, weight) = (targets.clone(), weight.clone());
        cross_entropy(hidden.clone(), head.clone(), targets, weight, model.z_loss).total
    })
}

/// GFLOP/s of a 1024 x 1024 x 1024 product.
fn gemm_gflops(repeats: usize) -> f64 {
    let (a, b) = (leaf("a", [1024, 1024]).inner(), leaf("b", [1024, 1024]).inner());
    let secs = median(repeats, || {
        a.clone().matmul(b.clone());
    });
    2.0 * 1024f64.powi(3) / secs / 1e9
}

fn median(repeats: usize, mut run: impl FnMut()) -> f64 {
    let timed = |_| {
        let started = Instant::now();
        run();
        started.elapsed().as_secs_f64()
    };
    middle((0..repeats).map(timed).collect())
}

fn middle(mut secs: Vec<f64>) -> f64 {
    secs.sort_by(f64::total_cmp);
    secs[secs.len() / 2]
}
