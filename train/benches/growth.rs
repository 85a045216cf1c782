//! What a whole training step costs as rows grow, at the same number of tokens a step: the proxy
//! shape with rows of 256 to 16,384 tokens and a window of 128.
//!
//! ```text
//! cargo bench --workspace --bench growth
//! ```
//!
//! Only the global layer's attention has more to do in longer rows. Whatever else grows, grows for
//! want of care: `of predicted` is the time over that of the shortest rows, divided by the same
//! ratio of counted FLOPs. The target is at most 1.25 in every line.

use std::time::Instant;

use burn::tensor::Device;
use fulmar_data::Batch;
use fulmar_ep::{Local, World};
use fulmar_model::Preset;
use fulmar_model::config::ModelConfig;
use fulmar_tests::made_up::{batch, proxy};
use fulmar_train::RunConfig;
use fulmar_train::config::BatchConfig;
use fulmar_train::optim::Schedule;
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;

const LENGTHS: [usize; 4] = [256, 1_024, 4_096, 16_384];
const TOKENS: usize = 16_384;
const REPEATS: usize = 3;

/// Products of attention in a step, forward 2 and backward 5, each 2 FLOPs a value.
const ATTENTION_FLOP: usize = 14;

/// Newton-Schulz of a proxy step, products of symmetric results counted half.
const NEWTON_SCHULZ_FLOP: f64 = 12.5e9;

fn main() {
    fulmar_kernels::allocator::keep_freed_memory();
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (lengths, tokens) = if is_test { (&LENGTHS[..1], 512) } else { (&LENGTHS[..], TOKENS) };
    let mut steps: Vec<Step> = lengths.iter().map(|&s| Step::new(s, tokens)).collect();
    let mut secs = vec![f64::INFINITY; steps.len()];
    // Turns, so that whatever disturbs the machine disturbs all lengths; the first warms up.
    for turn in 0..=if is_test { 1 } else { REPEATS } {
        for (best, step) in secs.iter_mut().zip(&mut steps) {
            let taken = step.secs();
            if turn > 0 {
                *best = best.min(taken);
            }
        }
    }
    println!(
        "{:>7}{:>10}{:>11}{:>9}{:>14}",
        "row", "s a step", "tokens/s", "GFLOP", "of predicted"
    );
    for (step, &taken) in steps.iter().zip(&secs) {
        let predicted = secs[0] * step.flop() / steps[0].flop();
        println!(
            "{:>7}{taken:>10.2}{:>11.0}{:>9.0}{:>14.2}",
            step.config.model.max_seq_len,
            tokens as f64 / taken,
            step.flop() / 1e9,
            taken / predicted
        );
    }
}

struct Step {
    config: RunConfig,
    state: TrainState,
    batch: Batch,
}

impl Step {
    fn new(seq_len: usize, tokens: usize) -> Self {
        let mut config = RunConfig::preset(Preset::MiniD96);
        config.model = ModelConfig { sliding_window: 128, max_seq_len: seq_len, ..proxy() };
        let rows = tokens / seq_len;
        config.batch = BatchConfig { rows: rows as u64, micro_rows: None };
        config.schedule.steps = 1_000;
        config.validate().expect("a valid shape");
        let state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
        let batch = batch(&config.model, rows);
        Self { config, state, batch }
    }

    fn secs(&mut self) -> f64 {
        let dispatcher = Local::new(self.config.model.num_experts);
        let (world, device, balancing) = (World::solo(), Device::flex(), balancing(&self.config));
        let context = StepContext::new(&self.config, &world, &dispatcher, &balancing, &device);
        let rates = self.state.optimizer.rates(&Schedule::new(2), 1);
        let started = Instant::now();
        let report = self.state.step(&self.batch, rates, &context).expect("step");
        assert!(report.updated, "a step on random tokens is finite");
        started.elapsed().as_secs_f64()
    }

    /// Counted as the published rule does, but for attention, of which every query counts the keys
    /// that it may read and no others.
    fn flop(&self) -> f64 {
        let (model, s) = (&self.config.model, self.config.model.max_seq_len);
        let keys = |window: usize| (1..=s).map(|keys| keys.min(window)).sum::<usize>();
        let of_layer = |layer| keys(if model.is_global(layer) { s } else { model.sliding_window });
        let keys: usize = (0..model.num_layers).map(of_layer).sum();
        let attention =
            ATTENTION_FLOP * self.batch.num_rows * keys * model.num_heads * model.head_dim;
        let tokens = (self.batch.num_rows * s) as f64;
        let forward = model.forward_flops();
        let products = 3.0 * (forward.total() - forward.attention_scores) as f64 * tokens;
        products + attention as f64 + NEWTON_SCHULZ_FLOP
    }
}
