//! A model of your own from our parts, in a training loop of your own.
//!
//! ```text
//! cargo run --release --example compose
//! ```
//!
//! Ours: attention, gated norm, experts, balancing, optimizer, data. Yours, in this file: the
//! router, the layer, the model and the loop. The layer differs from the recipe's on purpose:
//! attention and experts run side by side on one norm.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use burn::module::{Module, Param};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar::data::{self, Batch, DocumentMarks, MixtureConfig, RowLengths, RowSource, Tokenizer};
use fulmar::ep::transport::Group;
use fulmar::kernels::cross_entropy::cross_entropy;
use fulmar::kernels::top_k::top_k;
use fulmar::model::moe::LayerStats;
use fulmar::model::moe::quantile::MarginStats;
use fulmar::model::weights;
use fulmar::prelude::*;
use fulmar::train::optim::{
    Gradients, Optimizer, OptimizerConfig, OptimizerTable, Peaks, Schedule,
};

const STEPS: u64 = 50;
const BATCH_ROWS: u64 = 8;
const SEED: u64 = 0;

// Axis letters: b rows, s positions, t = b s tokens, d hidden, e experts, k experts per token.

/// Sends a token to its `k` best experts and weighs them by a softmax over those `k` scores.
///
/// The recipe's router takes sigmoids instead; any module that fills in a [`Routing`] will do.
#[derive(Module, Debug)]
struct SoftmaxRouter {
    /// [d, e].
    weight: Param<Tensor<2>>,
    /// `[e]`; moves the choice, never the weights. Balancing sets it, so it has no gradient.
    bias: Param<Tensor<1>>,
    k: usize,
}

impl SoftmaxRouter {
    fn new(config: &ModelConfig, init: &Initializer) -> Self {
        Self {
            weight: init.matrix("weight", [config.hidden_dim, config.num_experts]),
            bias: init.constant([config.num_experts], 0.0).set_require_grad(false),
            k: config.num_experts_per_token,
        }
    }
}

impl Router for SoftmaxRouter {
    fn route(&self, u: Tensor<2>) -> Routing {
        let logits = u.matmul(self.weight.val());
        // A choice has no gradient: `inner` leaves the graph.
        let biased = logits.clone().inner() + self.bias.val().inner().unsqueeze();
        let top = top_k(biased, self.k);
        // A token whose scores are not finite has -1 for every expert. The dispatcher refuses it
        // by name; here it only must not index out of range.
        let chosen = logits.clone().gather(1, top.selected.clone().clamp_min(0));
        Routing {
            logits,
            selected: top.selected,
            combine_weights: softmax(chosen, 1),
            alpha: top.next,
        }
    }

    fn bias(&self) -> Option<Tensor<1>> {
        Some(self.bias.val().inner())
    }

    fn with_bias(mut self, bias: Tensor<1>) -> Self {
        self.bias = self.bias.map(|_| Tensor::from_inner(bias));
        self
    }
}

/// `x + attention(norm(x)) + experts(norm(x))`.
#[derive(Module, Debug)]
struct ParallelLayer {
    norm: GatedRmsNorm,
    attention: Attention,
    moe: MoeLayer<SoftmaxRouter>,
}

/// What one layer of one step says about its routing.
type Stats = LayerStats<MarginStats>;

impl ParallelLayer {
    fn new(config: &ModelConfig, layer: usize, init: &Initializer) -> Self {
        let router = SoftmaxRouter::new(config, &init.scope("moe").scope("router"));
        Self {
            norm: GatedRmsNorm::new(config, &init.scope("norm")),
            attention: Attention::new(config, layer, &init.scope("attention")),
            moe: MoeLayer::with_router(config, router, &init.scope("moe")),
        }
    }

    fn forward(
        &self,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        routed: &Routed<'_, Local, QuantileBalancing>,
    ) -> Result<(Tensor<3>, Stats), Box<dyn Error>> {
        let [b, s, d] = x.dims();
        let u = self.norm.forward(x.clone().reshape([b * s, d]));
        let attended = self.attention.forward(u.clone().reshape([b, s, d]), segment_ids.clone());
        let (mixed, stats) = self.moe.forward(u, routed)?;
        Ok((x + attended + mixed.reshape([b, s, d]), stats))
    }
}

#[derive(Module, Debug)]
struct MyModel {
    /// [v, d].
    embedding: Param<Tensor<2>>,
    layers: Vec<ParallelLayer>,
    norm: GatedRmsNorm,
    /// [d, v].
    head: Param<Tensor<2>>,
}

impl MyModel {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        // A scope for each field: a weight follows from the seed and its path alone.
        let init = Initializer::new(SEED, config.initial_std(), device);
        let layer = |i| ParallelLayer::new(config, i, &init.scope("layers").scope(i));
        Self {
            embedding: init.matrix("embedding", [config.vocab_size, config.hidden_dim]),
            layers: (0..config.num_layers).map(layer).collect(),
            norm: GatedRmsNorm::new(config, &init.scope("norm")),
            head: init.matrix("head", [config.hidden_dim, config.vocab_size]),
        }
    }

    /// Mean nats a scored token, and each layer's routing.
    fn loss(
        &self,
        batch: &Batch,
        dispatcher: &Local,
        balancing: &QuantileBalancing,
        device: &Device,
    ) -> Result<(Tensor<1>, Vec<Stats>), Box<dyn Error>> {
        let (b, s) = (batch.num_rows, batch.seq_len);
        let ints = |values: &[i32]| Tensor::<1, Int>::from_data(TensorData::from(values), device);
        let segment_ids = ints(&batch.segment_ids).reshape([b, s]);
        let loss_weight = Tensor::<1>::from_data(TensorData::from(&batch.loss_weight[..]), device);
        let demand = dispatcher.demand(&batch.token_valid)?;
        let balancing = Some(balancing);
        let routed = Routed { dispatcher, balancing, demand: &demand, seq_len: s };

        let rows = self.embedding.val().select(0, ints(&batch.tokens));
        let d = rows.dims()[1];
        let mut x = rows.reshape([b, s, d]);
        let mut stats = Vec::new();
        for layer in &self.layers {
            let (out, of_layer) = layer.forward(x, &segment_ids, &routed)?;
            x = out;
            stats.push(of_layer);
        }
        let hidden = self.norm.forward(x.reshape([b * s, d]));
        // Head and loss in one operation, which never holds [t, v] logits; no z-loss here.
        let sums = cross_entropy(hidden, self.head.val(), ints(&batch.targets), loss_weight, 0.0);
        Ok((sums.total.div_scalar(batch.num_scored() as f64), stats))
    }

    /// Sets each router's bias so that the step just seen would have loaded experts evenly.
    fn balance(
        &mut self,
        balancing: &QuantileBalancing,
        stats: &[Stats],
        ranks: &Group,
    ) -> Result<(), Box<dyn Error>> {
        for (layer, stats) in self.layers.iter_mut().zip(stats) {
            let Some((_, margins)) = &stats.training else { continue };
            let pending = balancing.pending(&[], margins, ranks)?;
            layer.moe = layer.moe.clone().with_pending(balancing, &pending);
        }
        Ok(())
    }
}

// What each parameter is decides how the optimizer updates it: MuonH for matrices and experts,
// AdamH for the head, Adam for the rest. A parameter without a role is an error.

impl Roles for SoftmaxRouter {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "weight", Role::Router);
        table.declare(path, "bias", Role::RouterBias);
    }
}

impl Roles for ParallelLayer {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        self.norm.declare_roles(&join(path, "norm"), table);
        self.attention.declare_roles(&join(path, "attention"), table);
        self.moe.declare_roles(&join(path, "moe"), table);
    }
}

impl Roles for MyModel {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "embedding", Role::Embedding);
        self.layers.declare_roles(&join(path, "layers"), table);
        self.norm.declare_roles(&join(path, "norm"), table);
        table.declare(path, "head", Role::Head);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // First of all: a kernel that fails on a device's thread must end the process.
    abort_on_device_panic();
    let device = Device::flex();

    let config = ModelConfig {
        hidden_dim: 64,
        num_layers: 2,
        num_heads: 2,
        num_experts: 16,
        num_experts_per_token: 2,
        latent_dim: 32,
        intermediate_dim: 64,
        shared_intermediate_dim: 64,
        num_shared_experts: 1,
        max_seq_len: 128,
        sliding_window: 64,
        ..Preset::MiniD96.config()
    };
    config.validate()?;

    let rows = shipped_rows(config.max_seq_len)?;
    let dispatcher = Local::new(config.num_experts);
    let balancing = QuantileBalancing { bins: config.quantile_bins, range: MarginRange::OnePass };

    let mut model = MyModel::new(&config, &device.clone().autodiff());
    let table = OptimizerTable::new(&model.roles(), &weights::shapes(&model))?;
    println!("{} parameters: {}", model.num_params(), table.summary());
    let tokens_per_step = BATCH_ROWS * config.max_seq_len as u64;
    let optimizer_config = OptimizerConfig::default();
    let peaks =
        Peaks::new(&optimizer_config, STEPS * tokens_per_step, config.hidden_dim, tokens_per_step);
    let mut optimizer = Optimizer::new(table, optimizer_config, peaks);
    let schedule = Schedule { warmup_steps: Some(5), ..Schedule::new(STEPS) };

    let started = Instant::now();
    for step in 0..STEPS {
        let batch = rows.batch(step * BATCH_ROWS..(step + 1) * BATCH_ROWS);
        let (loss, stats) = model.loss(&batch, &dispatcher, &balancing, &device)?;
        let gradients = Gradients::of(&model, loss.backward());
        let rates = optimizer.rates(&schedule, step);
        optimizer.step(&mut model, gradients, rates, dispatcher.group())?;
        model.balance(&balancing, &stats, dispatcher.group())?;

        if step == 0 || (step + 1) % 10 == 0 {
            let loss = loss.into_scalar::<f32>();
            println!("step {:>2}: loss {loss:.4}, {}", step + 1, load(&stats));
        }
    }
    println!("{STEPS} steps in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Rows of the corpus that ships with `fulmar-data`; its token store is built once and cached.
fn shipped_rows(seq_len: usize) -> Result<RowSource, data::DataError> {
    let tokenizer = Tokenizer::shipped()?;
    let sources = [data::corpus::train()];
    let (store, _) =
        data::build_or_open(&sources, &tokenizer, DocumentMarks::default(), "runs/cache")?;
    // Blocks no longer than this run, so that its rows hold every cell's share.
    let mixture = MixtureConfig::proportional(&store, seq_len, STEPS * BATCH_ROWS);
    RowSource::new(Arc::new(store), &mixture, &RowLengths::constant(seq_len), SEED)
}

/// The largest share of assignments that one expert got, over its fair share; 1 is perfect.
fn load(stats: &[Stats]) -> String {
    let worst = stats.iter().filter_map(|layer| {
        let counts = &layer.training.as_ref()?.0.expert_counts;
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        Some(*counts.iter().max()? as f64 / mean)
    });
    format!("busiest expert at {:.2} of its fair share", worst.fold(0.0, f64::max))
}
