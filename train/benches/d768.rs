//! The d768 rung at full shape on a CPU: micro-steps of one row of 4,096 tokens, forward, backward and
//! the update of all 1.59 billion parameters, with the memory they take.
//!
//! ```text
//! cargo bench --workspace --bench d768              # minutes, and 20 GiB of memory or more
//! cargo bench --workspace --bench d768 -- --small   # two layers of 96 experts, about 2.5 GiB
//! cargo bench --workspace --bench d768 -- --test    # a tiny shape: shows that the bench runs
//! ```
//!
//! What is counted are weights, gradients and optimizer state. The peak has the activations of a
//! block beside them, since blocks are computed again in backward, the scratch of one update and the
//! program. The first step makes the optimizer's state when its activations are gone, so the peak of
//! a run is that of the second.

use std::time::Instant;

use burn::tensor::Device;
use fulmar_data::Batch;
use fulmar_ep::{Local, World};
use fulmar_model::{Preset, Recompute};
use fulmar_tests::made_up::batch;
use fulmar_train::RunConfig;
use fulmar_train::optim::Schedule;
use fulmar_train::plan::grouped;
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
use fulmar_train::telemetry::memory::{Sizes, human, peak_resident_bytes};

fn main() {
    fulmar_kernels::allocator::keep_freed_memory();
    let asked = |flag: &str| std::env::args().any(|arg| arg == flag);
    let config = if asked("--test") {
        shape("tiny", 2, 8, 256, 64)
    } else if asked("--small") {
        shape("small", 2, 96, 16_384, 4_096)
    } else {
        let whole = Preset::D768.config();
        shape("full", whole.num_layers, whole.num_experts, whole.vocab_size, whole.max_seq_len)
    };
    println!("{}: {} parameters", config.name, grouped(config.model.num_params()));

    let device = Device::flex();
    let started = Instant::now();
    let mut state = TrainState::new(&config, &World::solo(), &device).expect("a state");
    let initial = started.elapsed().as_secs_f64();
    let (sizes, after_init) = (Sizes::of(&state), peak_resident_bytes());
    print!("{sizes}");
    say_peak("after initialisation", after_init, sizes.weights.total());

    println!("{:<24}{initial:>10.2} s", "initialisation");
    for which in ["first", "second"] {
        let started = Instant::now();
        let seconds = step(&config, &mut state, &device);
        let total = started.elapsed().as_secs_f64();
        println!("the {which} step{:>12} {total:>10.2} s", "");
        for (phase, secs) in [
            ("forward and backward", seconds.forward_backward),
            ("update", seconds.update),
            ("rest", total - seconds.forward_backward - seconds.update),
        ] {
            println!("  {phase:<22}{secs:>10.2} s{:>7.1}%", 100.0 * secs / total);
        }
        say_peak(&format!("after the {which} step"), peak_resident_bytes(), sizes.total());
        println!("tokens/s: {:.1}", config.tokens_per_step() as f64 / total);
    }
}

/// The d768 rung with one row a step, of these sizes.
fn shape(name: &str, layers: usize, experts: usize, vocabulary: usize, tokens: usize) -> RunConfig {
    let mut config = RunConfig::preset(Preset::D768);
    name.clone_into(&mut config.name);
    let model = &mut config.model;
    (model.num_layers, model.num_experts) = (layers, experts);
    (model.vocab_size, model.max_seq_len) = (vocabulary, tokens);
    model.num_experts_per_token = model.num_experts_per_token.min(experts - 1);
    config.batch.rows = 1;
    config.memory.recompute = Recompute::Block;
    config.schedule.steps = 100;
    config.validate().expect("a valid shape");
    config
}

/// One step on a made-up row of two documents.
fn step(
    config: &RunConfig,
    state: &mut TrainState,
    device: &Device,
) -> fulmar_train::step::StepSeconds {
    let (dispatcher, balancing) = (Local::new(config.model.num_experts), balancing(config));
    let world = World::solo();
    let context = StepContext::new(config, &world, &dispatcher, &balancing, device);
    let rates = state.optimizer.rates(&Schedule::new(2), 1);
    let report = state.step(&row(config), rates, &context).expect("a step");
    println!("loss {:.4}, gradient norm {:.4}", report.loss, report.grad_norm);
    assert!(report.updated, "a step on made-up tokens is finite");
    report.seconds
}

/// A row of two documents.
fn row(config: &RunConfig) -> Batch {
    let mut row = batch(&config.model, 1);
    let border = row.seq_len / 3;
    row.loss_weight[border - 1] = 0.0;
    row.segment_ids[border..].fill(1);
    row
}

fn say_peak(when: &str, peak: Option<u64>, counted: u64) {
    match peak {
        Some(peak) => println!(
            "peak resident memory {when}: {}, {:.3} of the {} counted",
            human(peak),
            peak as f64 / counted as f64,
            human(counted),
        ),
        None => println!("peak resident memory {when}: this system does not tell"),
    }
}
