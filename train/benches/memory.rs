//! What a micro-step holds, measured by owner beside what `train plan` expects.
//!
//! ```text
//! cargo bench --workspace --bench memory
//! ```
//!
//! The miniature of the presets and a shape of more than twice its width, on one rank and over four,
//! in every mode. Bytes are those of the allocator, so the process itself is no part of them; ranks
//! share it, and one's are the mean.

use std::alloc::System;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::transport::run_world;
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_model::config::ModelConfig;
use fulmar_model::{BackwardPlan, GradientSink, ModelInput, Preset, Recompute};
use fulmar_tests::made_up::batch;
use fulmar_tests::memory::{Counting, live, peak, restart};
use fulmar_train::config::BatchConfig;
use fulmar_train::memory_plan::MemoryPlan;
use fulmar_train::optim::Schedule;
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
use fulmar_train::{RunConfig, TrainError};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Timed repetitions; the fastest counts.
const REPEATS: usize = 3;

/// Longer than any wait.
const DEADLINE: Duration = Duration::from_secs(600);

fn main() {
    // `cargo test --benches` passes `--test`: then the small shape shows that the bench runs.
    let short = std::env::args().any(|arg| arg == "--test");
    let shapes = if short { vec![("mini_d96, 1 row", mini(1, 1))] } else { shapes() };
    for (name, config) in shapes {
        println!("{name}");
        println!(
            "{:<10} {:<16} {:>12} {:>12} {:>8}",
            "recompute", "owner", "planned MiB", "found MiB", "ratio"
        );
        let mut secs = Vec::new();
        for recompute in Recompute::ALL {
            let mut config = config.clone();
            config.memory.recompute = recompute;
            let found = measure(&config);
            found.print(&MemoryPlan::new(&config), recompute);
            secs.push(found.secs);
        }
        for (recompute, of_mode) in Recompute::ALL.iter().zip(&secs).skip(1) {
            println!("{}: {:.2} of the time of none", recompute.name(), of_mode / secs[0]);
        }
    }
}

fn shapes() -> Vec<(&'static str, RunConfig)> {
    vec![
        ("mini_d96, 8 rows of 256", mini(8, 8)),
        ("mini_d96, 8 rows of 256 in two micro-batches", mini(8, 4)),
        ("width 256, 8 layers, 48 experts, 4 rows of 1,024", mid()),
        ("the same over four ranks, pooled-wave", over_ranks(DispatchConfig::pooled_wave())),
        ("the same over four ranks, ragged", over_ranks(DispatchConfig::dropless())),
    ]
}

fn mini(rows: u64, micro_rows: u64) -> RunConfig {
    let mut config = RunConfig::preset(Preset::MiniD96);
    config.batch = BatchConfig { rows, micro_rows: Some(micro_rows) };
    config.validate().expect("a valid shape");
    config
}

fn mid() -> RunConfig {
    let mut config = mini(4, 4);
    config.model = ModelConfig {
        hidden_dim: 256,
        num_heads: 4,
        head_dim: 64,
        num_experts: 48,
        intermediate_dim: 128,
        latent_dim: 128,
        shared_intermediate_dim: 128,
        gated_norm_rank: 32,
        max_seq_len: 1_024,
        sliding_window: 512,
        ..config.model
    };
    config.validate().expect("a valid shape");
    config
}

/// [`mid`] with a row on each of four shards.
fn over_ranks(dispatch: DispatchConfig) -> RunConfig {
    let mut config = mid();
    config.batch.micro_rows = None;
    config.parallel.shards = 4;
    config.parallel.dispatch = dispatch;
    config.validate().expect("a valid shape");
    config
}

/// Bytes of a rank by owner, as they were found, and seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    weights: usize,
    gradients: usize,
    optimizer_state: usize,
    statistics: usize,
    activations: usize,
    loss: usize,
    peak: usize,
    secs: f64,
}

/// Means over the ranks of `config`, which share an allocator.
fn measure(config: &RunConfig) -> Found {
    let layout = config.parallel.layout();
    let found = run_world(layout.ranks(), DEADLINE, |transport| {
        Rank { config, world: &World::new(transport, layout)? }.run()
    });
    found.unwrap_or_else(|error| panic!("{error}")).swap_remove(0)
}

/// One rank; all come to each look at the allocator together.
struct Rank<'a> {
    config: &'a RunConfig,
    world: &'a World,
}

impl Rank<'_> {
    fn run(&self) -> Result<Found, TrainError> {
        let (config, world, device) = (self.config, self.world, Device::flex());
        let experts = config.model.num_experts;
        let mut found = Found::default();
        let start = self.live()?;
        let mut state = TrainState::new(config, world, &device)?;
        found.weights = self.live()? - start;
        let dispatcher = Dispatcher::new(&config.parallel.dispatch, experts, &world.expert)?;
        let balancing = balancing(config);
        let context = StepContext::new(config, world, &dispatcher, &balancing, &device);
        let rates = state.optimizer.rates(&Schedule::new(2), 1);
        let batch = batch(&config.model, config.batch.rows as usize);
        // Moments are there after the first update.
        state.step(&batch, rates, &context)?;
        found.optimizer_state = self.live()? - start - found.weights;
        found.secs = f64::INFINITY;
        for _ in 0..REPEATS {
            self.restart()?;
            let started = Instant::now();
            self.micro_batches(&state, &context, &batch, &mut found)?;
            found.secs = found.secs.min(started.elapsed().as_secs_f64());
        }
        found.peak = found.peak.max(self.peak()?) - start;
        Ok(found)
    }

    /// The micro-batches of a step, forward and back.
    fn micro_batches(
        &self,
        state: &TrainState,
        context: &StepContext<'_, Dispatcher>,
        batch: &Batch,
        found: &mut Found,
    ) -> Result<(), TrainError> {
        let sink = GradientSink::default();
        let plan = BackwardPlan { recompute: context.recompute, gradients: &sink };
        let (model, start, rows) = (&state.model, self.live()?, context.micro_rows);
        let of_rank = batch.num_rows / self.world.layout.ranks();
        let first_row = of_rank * self.world.rank();
        let mut statistics = Vec::new();
        for first in (first_row..first_row + of_rank).step_by(rows) {
            let (input, targets, weight) = tensors(batch.rows(first..first + rows));
            let before = self.live()?;
            let balancing = Some(context.balancing);
            let output = model.forward_by(Some(&plan), &input, context.dispatcher, balancing)?;
            let kept = self.live()?;
            found.activations = kept - before;
            found.peak = found.peak.max(self.peak()?);
            self.restart()?;
            let loss = model.loss_by(&plan, output.hidden, targets, weight, context.z_loss);
            found.loss = self.peak()? - kept;
            loss.total.backward();
            statistics.push(output.layers);
        }
        let (with_all, mut of_last) = (self.live()?, 0);
        for of_pass in statistics {
            let before = self.live()?;
            drop(of_pass);
            of_last = before - self.live()?;
        }
        let after = self.live()?;
        found.statistics = with_all - after;
        found.activations -= of_last;
        found.gradients = after - start;
        Ok(())
    }

    /// Bytes of a rank.
    fn live(&self) -> Result<usize, TrainError> {
        self.look(|| live() / self.world.layout.ranks())
    }

    fn peak(&self) -> Result<usize, TrainError> {
        self.look(|| peak() / self.world.layout.ranks())
    }

    fn restart(&self) -> Result<(), TrainError> {
        self.look(restart)
    }

    /// What `look` says while no rank does anything.
    fn look<T>(&self, look: impl FnOnce() -> T) -> Result<T, TrainError> {
        self.world.all.barrier("memory")?;
        let seen = look();
        self.world.all.barrier("memory")?;
        Ok(seen)
    }
}

impl Found {
    fn print(&self, plan: &MemoryPlan, recompute: Recompute) {
        let mode = plan.mode(recompute);
        for (owner, planned, found) in [
            ("weights", plan.weights, self.weights),
            ("gradients", plan.gradients, self.gradients),
            ("optimizer state", plan.optimizer_state, self.optimizer_state),
            ("statistics", plan.statistics, self.statistics),
            ("loss", plan.loss, self.loss),
            ("activations", mode.activations, self.activations),
            ("peak", mode.peak, self.peak),
        ] {
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            let (planned, found) = (planned as f64, found as f64);
            println!(
                "{:<10} {owner:<16} {:>12.1} {:>12.1} {:>8.2}",
                recompute.name(),
                mib(planned),
                mib(found),
                planned / found,
            );
        }
    }
}

fn tensors(batch: Batch) -> (ModelInput, Tensor<1, Int>, Tensor<1>) {
    let (device, len) = (Device::flex(), batch.targets.len());
    let shape = [batch.num_rows, batch.seq_len];
    let input = ModelInput::new(batch.tokens, batch.segment_ids, batch.token_valid, shape, &device);
    let targets = Tensor::from_data(TensorData::new(batch.targets, [len]), &device);
    (input, targets, Tensor::from_data(TensorData::new(batch.loss_weight, [len]), &device))
}
