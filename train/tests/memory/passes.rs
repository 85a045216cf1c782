//! What forward and backward passes keep and leave behind.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::{Local, World};
use fulmar_model::{BackwardPlan, GradientSink, ModelInput, Recompute, Transformer};
use fulmar_tests::made_up;
use fulmar_tests::memory::{live, peak, restart};
use fulmar_train::optim::{Gradients, Schedule};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
use fulmar_train::{RunConfig, recipe};

use super::turn;

const MODES: [Recompute; 3] = [Recompute::None, Recompute::Block, Recompute::SaveMoe];

/// Experts hold most of the model, and rows are short.
fn config(overrides: &[&str]) -> RunConfig {
    let text = r#"
        name = "memory"
        [model]
        preset = "mini_d96"
        vocab_size = 64
        num_layers = 4
        num_experts = 32
        num_experts_per_token = 2
        max_seq_len = 32
        sliding_window = 16
        quantile_bins = 100
        sequence_balance_loss = 0.01
        [batch]
        rows = 4
        micro_rows = 2
        [schedule]
        steps = 100
    "#;
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    recipe::parse(text, "memory.toml", &overrides).expect("a recipe")
}

/// A batch of which every position is scored.
fn batch(config: &RunConfig) -> Batch {
    let mut batch = made_up::batch(&config.model, config.batch.rows as usize);
    batch.loss_weight.fill(1.0);
    batch
}

/// Bytes that are live after each of some steps.
fn live_after_steps(config: &RunConfig, steps: usize) -> Vec<usize> {
    let (device, world) = (Device::flex(), World::solo());
    let mut state = TrainState::new(config, &world, &device).expect("a state");
    let (batch, dispatcher) = (batch(config), Local::new(config.model.num_experts));
    let balancing = balancing(config);
    let context = StepContext::new(config, &world, &dispatcher, &balancing, &device);
    let mut after = Vec::with_capacity(steps);
    for _ in 0..steps {
        let rates = state.optimizer.rates(&Schedule::new(2), 1);
        assert!(state.step(&batch, rates, &context).expect("a step").updated);
        after.push(live());
    }
    after
}

#[test]
fn twenty_steps_leave_nothing_behind() {
    let _turn = turn();
    for recompute in MODES {
        let mut config = config(&[]);
        config.memory.recompute = recompute;
        let after = live_after_steps(&config, 25);
        let grown = after[24] as i64 - after[4] as i64;
        println!("{recompute:?}: {grown} bytes in 20 steps");
        // Thread pools come and go by some KiB. One kept tensor of a block, 64 tokens of width 96
        // in each step, would be 480.
        assert!(grown < 64 * 1024, "{recompute:?}: {after:?}");
    }
}

fn tensors(config: &RunConfig) -> (ModelInput, Tensor<1, Int>, Tensor<1>) {
    let (batch, device) = (batch(config), Device::flex());
    let len = batch.targets.len();
    let targets = Tensor::from_data(TensorData::new(batch.targets, [len]), &device);
    let shape = [batch.num_rows, batch.seq_len];
    let input = ModelInput::new(batch.tokens, batch.segment_ids, batch.token_valid, shape, &device);
    (input, targets, Tensor::ones([len], &device))
}

/// Gradients of some passes over the same rows, and the most bytes that they took.
fn gradients_of(config: &RunConfig, passes: usize, plan: Option<Recompute>) -> (Gradients, usize) {
    let model = Transformer::new(&config.model, 0, &Device::flex().autodiff()).expect("a model");
    let (input, targets, weight) = tensors(config);
    let (dispatcher, balancing) = (Local::new(config.model.num_experts), balancing(config));
    let sink = GradientSink::default();
    let plan = plan.map(|recompute| BackwardPlan { recompute, gradients: &sink });
    let mut gradients = Gradients::default();
    let before = live();
    restart();
    for _ in 0..passes {
        let output = model
            .forward_by(plan.as_ref(), &input, &dispatcher, Some(&balancing))
            .expect("a forward pass");
        let (targets, weight) = (targets.clone(), weight.clone());
        let loss = match &plan {
            Some(plan) => model.loss_by(plan, output.hidden, targets, weight, 0.0),
            None => model.loss(output.hidden, targets, weight, 0.0),
        };
        let balance = output.sequence_balance.expect("a loss of its own").sum();
        let grads = (balance + loss.total).backward();
        if plan.is_none() {
            gradients.add(&model, grads);
        }
    }
    gradients.add_from(&model, &sink);
    (gradients, peak() - before)
}

#[test]
fn gradients_are_there_once() {
    let _turn = turn();
    let config = config(&["model.max_seq_len=16", "batch.rows=1", "batch.micro_rows=1"]);
    let bytes = 4 * config.model.num_params() as usize;
    let block = bytes / config.model.num_layers;
    let (kept, burns) = gradients_of(&config, 2, None);
    let (found, peak) = gradients_of(&config, 2, Some(Recompute::None));
    println!("gradients {bytes}, peak {burns} as Burn returns them, {peak} in a sink");
    assert_eq!(found.norm().to_bits(), kept.norm().to_bits());
    // All but those of the block that the backward pass is at.
    assert!(peak + bytes < burns + block + block / 2, "{peak} is not {bytes} less than {burns}");
}

#[test]
fn a_block_that_is_computed_again_keeps_its_input_alone() {
    let _turn = turn();
    // Long rows and few experts: activations are most of it.
    let config = config(&["model.num_experts=4", "model.max_seq_len=256", "model.num_layers=8"]);
    let peak = |recompute| gradients_of(&config, 1, Some(recompute)).1;
    let (none, block, save_moe) =
        (peak(Recompute::None), peak(Recompute::Block), peak(Recompute::SaveMoe));
    println!("peak {none} with all kept, {block} with inputs, {save_moe} with deliveries");
    // Of eight blocks about one is there at a time.
    assert!(3 * block < none, "{block} and {none}");
    // On one shard nothing is delivered. What threads hold at the peak differs by some KiB.
    assert!(save_moe.abs_diff(block) < block / 20, "{save_moe} and {block}");
}
