//! Training over thread ranks computes what one rank computes.
//!
//! Tolerances are relative to the largest entry of a tensor. They cover the order of f32 sums alone:
//! what ranks exchange and add is the same set of numbers. Each test prints the worst it saw
//! (`--nocapture`).

use std::sync::atomic::{AtomicBool, Ordering};

use fulmar::data::Batch;
use fulmar::ep::{DispatchConfig, DispatchCounts, Payload};
use fulmar::model::weights;
use fulmar::prelude::{MarginRange, Router as _};
use fulmar::train::checkpoint::Manifest;
use fulmar::train::step::StepReport;
use fulmar::train::{RunConfig, TrainError};
use fulmar_tests::compare::assert_close;

use crate::toy::{self, Found, Rank, Values, on_every_rank, whole};

/// A batch's gradients and what one step from the same state left.
struct Outcome {
    loss: f64,
    norm: f64,
    gradients: Values,
    weights: Values,
    expert_counts: Vec<Vec<u64>>,
    dropped: u64,
}

/// Gradients and a step of every rank of `config`, put together; what must be equal on all ranks is.
fn outcome(config: &RunConfig, batch: &Batch) -> Outcome {
    let layout = config.parallel.layout();
    let ranks = on_every_rank(config, |mut rank| {
        let found = rank.gradients(batch)?;
        let report = rank.step(batch)?;
        assert!(report.updated);
        Ok((found, report, rank.weights()))
    });
    for (found, report, _) in &ranks {
        let (first, first_report, _) = &ranks[0];
        assert_eq!(found.norm.to_bits(), first.norm.to_bits(), "gradient norm, {layout:?}");
        assert_eq!(report.grad_norm.to_bits(), first.norm.to_bits(), "norm of the step");
        assert_eq!(report.loss.to_bits(), first_report.loss.to_bits(), "loss, {layout:?}");
    }
    let report = &ranks[0].1;
    let values = |of: fn(&(Found, StepReport, Values)) -> &Values| {
        whole(layout, &ranks.iter().map(|rank| of(rank).clone()).collect::<Vec<_>>())
    };
    Outcome {
        loss: report.loss,
        norm: report.grad_norm,
        gradients: values(|(found, ..)| &found.values),
        weights: values(|(_, _, weights)| weights),
        expert_counts: report.layers.iter().map(|l| l.routing.expert_counts.clone()).collect(),
        dropped: dropped(report),
    }
}

fn dropped(report: &StepReport) -> u64 {
    report.layers.iter().map(|l| l.counts.sender_dropped + l.counts.receiver_dropped).sum()
}

/// Largest deviation of any tensor, relative to that tensor's largest entry.
fn worst(found: &Values, needed: &Values) -> f32 {
    let of_tensor = |(path, needed): (&String, &Vec<f32>)| {
        let scale = needed.iter().fold(f32::MIN_POSITIVE, |max, value| max.max(value.abs()));
        let distance = |(a, b): (&f32, &f32)| (a - b).abs() / scale;
        found[path].iter().zip(needed).map(distance).fold(0.0, f32::max)
    };
    needed.iter().map(of_tensor).fold(0.0, f32::max)
}

fn assert_all_close(what: &str, found: &Values, needed: &Values, tolerance: f32) {
    let paths = |values: &Values| values.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(found), paths(needed), "{what}");
    for (path, needed) in needed {
        assert_close(&format!("{what}: {path}"), &found[path], needed, tolerance);
    }
}

fn relative(found: f64, needed: f64) -> f64 {
    ((found - needed) / needed).abs()
}

fn assert_same_outcome(what: &str, found: &Outcome, needed: &Outcome) {
    println!(
        "{what}: loss {:.1e}, norm {:.1e}, gradients {:.1e}, weights {:.1e}",
        relative(found.loss, needed.loss),
        relative(found.norm, needed.norm),
        worst(&found.gradients, &needed.gradients),
        worst(&found.weights, &needed.weights),
    );
    assert_eq!(found.dropped, 0, "{what}: dropped");
    assert_eq!(found.expert_counts, needed.expert_counts, "{what}: chosen experts");
    assert!(relative(found.loss, needed.loss) <= 1e-6, "{what}: {} {}", found.loss, needed.loss);
    assert!(relative(found.norm, needed.norm) <= 1e-6, "{what}: {} {}", found.norm, needed.norm);
    assert_all_close(&format!("{what}, gradient"), &found.gradients, &needed.gradients, 1e-5);
    assert_all_close(&format!("{what}, weight"), &found.weights, &needed.weights, 1e-4);
}

#[test]
fn every_layout_has_the_loss_gradients_and_weights_of_one_rank() {
    let config = toy::config([1, 1], &[]);
    let batch = toy::batch(&config, 1);
    let needed = outcome(&config, &batch);
    for (replicas, shards) in [1, 2].into_iter().flat_map(|r| [1, 2, 4, 8].map(|p| (r, p))) {
        let ragged = ["parallel.dispatch={kind=\"ragged\"}"];
        let found = outcome(&toy::config([replicas, shards], &ragged), &batch);
        assert_same_outcome(&format!("{replicas} x {shards}"), &found, &needed);
    }
}

/// Every exchange with room for everything over four shards and over two replicas of two.
fn roomy_configs(overrides: &[&str]) -> Vec<(String, RunConfig)> {
    let layouts = [[1, 4], [2, 2]].into_iter();
    let configs = layouts.flat_map(|[replicas, shards]| {
        let config = toy::config([replicas, shards], overrides);
        toy::roomy(&config).map(|(name, dispatch)| {
            let mut config = config.clone();
            config.parallel.dispatch = dispatch;
            (format!("{replicas} x {shards}, {name}"), config)
        })
    });
    configs.collect()
}

#[test]
fn every_exchange_with_room_has_the_loss_gradients_and_weights_of_one_rank() {
    let config = toy::config([1, 1], &[]);
    let batch = toy::batch(&config, 2);
    let needed = outcome(&config, &batch);
    for (name, config) in roomy_configs(&[]) {
        assert_same_outcome(&name, &outcome(&config, &batch), &needed);
    }
}

#[test]
fn every_exchange_has_them_with_four_micro_batches_a_rank_too() {
    let config = toy::config([1, 1], &[]);
    let batch = toy::batch(&config, 3);
    let needed = outcome(&config, &batch);
    for (name, config) in roomy_configs(&["batch.micro_rows=2"]) {
        let name = format!("{name}, micro-batches");
        assert_same_outcome(&name, &outcome(&config, &batch), &needed);
    }
}

#[test]
fn sixteen_tokens_give_the_same_expert_gradients_and_norm_over_any_four_ranks() {
    // pytorch#160285: gradients of experts came out multiplied by the number of shards;
    // DeepSpeed#8475: the norm depended on where experts live.
    let sixteen = ["model.max_seq_len=4", "model.sliding_window=4", "batch.rows=4"];
    let config = toy::config([1, 1], &sixteen);
    let batch = toy::batch(&config, 4);
    assert_eq!(batch.num_valid(), 16);
    let needed = outcome(&config, &batch);
    let experts = needed.gradients.keys().filter(|path| path.contains(".experts.")).count();
    assert_eq!(experts, 6, "three stacks in each of two layers");
    for layout in [[2, 1], [1, 2], [2, 2]] {
        let found = outcome(&toy::config(layout, &sixteen), &batch);
        assert_same_outcome(&format!("16 tokens, {layout:?}"), &found, &needed);
    }
}

/// All that three steps leave on each rank, as bits.
#[derive(PartialEq, Eq)]
struct Trace {
    losses: Vec<[u64; 2]>,
    counts: Vec<Vec<DispatchCounts>>,
    tokens_by_lost: Vec<Vec<u64>>,
    weights: Vec<(String, Vec<u8>)>,
    pending: Vec<Vec<u32>>,
}

fn trace(rank: &mut Rank<'_>, batches: &[Batch]) -> Result<Trace, TrainError> {
    let (mut losses, mut counts, mut tokens_by_lost) = (Vec::new(), Vec::new(), Vec::new());
    for batch in batches {
        let report = rank.step(batch)?;
        losses.push([report.loss.to_bits(), report.grad_norm.to_bits()]);
        for layer in report.layers {
            counts.push(layer.counts_by_rank);
            tokens_by_lost.push(layer.tokens_by_lost);
        }
    }
    let tensors = weights::export(&rank.state.model).into_iter();
    let tensors = tensors.chain(rank.state.optimizer.export());
    let weights = tensors.map(|(name, data)| (name, data.as_bytes().to_vec())).collect();
    let bits = |layer: &Vec<f32>| layer.iter().map(|value| value.to_bits()).collect();
    let pending = rank.state.pending.iter().map(bits).collect();
    Ok(Trace { losses, counts, tokens_by_lost, weights, pending })
}

#[test]
fn one_seed_and_layout_has_the_same_bits_however_busy_the_machine_is() {
    let mut config = toy::config([2, 4], &[]);
    config.parallel.dispatch = DispatchConfig::PooledWave {
        num_expert_waves: 2,
        capacity_factor: 0.9,
        transport_capacity_factor: 0.8,
        payload: Payload::F32,
    };
    let batches = [5, 6, 7].map(|seed| toy::batch(&config, seed));
    let three_steps = || on_every_rank(&config, |mut rank| trace(&mut rank, &batches));
    let quiet = three_steps();
    let mut drops = DispatchCounts::default();
    quiet[0].counts.iter().flatten().for_each(|of_rank| drops += *of_rank);
    assert!(drops.sender_dropped > 0 && drops.receiver_dropped > 0, "{drops:?}");

    let done = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let traces = three_steps();
        done.store(true, Ordering::Relaxed);
        traces
    });
    for (rank, (quiet, busy)) in quiet.iter().zip(&busy).enumerate() {
        assert!(quiet == busy, "rank {rank}: other bits on a busy machine");
    }
}

#[test]
fn every_exchange_agrees_on_a_second_batch_after_the_biases_have_moved() {
    // marin#8077: forwards agreed and gradients did not.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = toy::config([1, 1], &[]);
    let [first, second] = [8, 9].map(|seed| toy::batch(&config, seed));
    let storage = toy::storage_in(folder.path());
    let needed = on_every_rank(&config, |mut rank| {
        rank.step(&first)?;
        rank.save(&storage)?;
        let found = rank.gradients(&second)?;
        let (low, high) = rank.step(&second)?.bias_range;
        assert!(low < -0.01 && high > 0.01, "biases from {low} to {high}");
        Ok(found)
    });
    let manifest = Manifest::read(&*storage, 1).expect("a manifest");
    for layout in [[1, 4], [2, 2]] {
        let config = toy::config(layout, &[]);
        let exchanges = toy::roomy(&config);
        let ranks = on_every_rank(&config, |mut rank| {
            rank.restore_whole(&storage, &manifest)?;
            let found = exchanges.iter().map(|(_, dispatch)| {
                rank.exchange_by(dispatch)?;
                rank.gradients(&second)
            });
            found.collect::<Result<Vec<_>, _>>()
        });
        for (exchange, (name, _)) in exchanges.iter().enumerate() {
            let name = format!("{layout:?}, {name}, second batch");
            let of_ranks: Vec<Values> =
                ranks.iter().map(|rank| rank[exchange].values.clone()).collect();
            let found = whole(config.parallel.layout(), &of_ranks);
            println!("{name}: gradients {:.1e}", worst(&found, &needed[0].values));
            let loss = ranks[0][exchange].loss;
            assert!(relative(loss, needed[0].loss) <= 1e-6, "{name}: {loss} {}", needed[0].loss);
            assert_all_close(&name, &found, &needed[0].values, 1e-5);
        }
    }
}

#[test]
fn a_joint_norm_over_shards_is_that_of_the_whole_stack() {
    let joint = ["optimizer.muonh_norm=joint"];
    let config = toy::config([1, 1], &joint);
    let batch = toy::batch(&config, 10);
    let needed = outcome(&config, &batch);
    let of_each = outcome(&toy::config([1, 1], &[]), &batch);
    let apart = worst(&of_each.weights, &needed.weights);
    assert!(apart > 1e-3, "a joint norm is another update, not {apart} apart");
    for layout in [[1, 2], [1, 4], [2, 2]] {
        let found = outcome(&toy::config(layout, &joint), &batch);
        println!("joint norm, {layout:?}: {:.1e}", worst(&found.weights, &needed.weights));
        assert_all_close(&format!("joint norm, {layout:?}"), &found.weights, &needed.weights, 1e-5);
    }
}

/// The range of each layer's margins over a batch, on one rank.
fn margin_ranges(rank: &Rank<'_>, batch: &Batch) -> Result<Vec<f32>, TrainError> {
    let model = &rank.state.model;
    let inputs =
        model.router_inputs(&rank.input(batch), &rank.dispatcher, Some(&rank.balancing))?;
    let layers = model.layers.iter().zip(inputs).map(|(block, u)| {
        let routing = block.moe.router.route(u);
        let margins = routing.logits.inner() - routing.alpha.unsqueeze_dim(1);
        let margins: Vec<f32> = margins.into_data().iter::<f32>().collect();
        let num_experts = margins.len() / batch.token_valid.len();
        let tokens = margins.chunks(num_experts).zip(&batch.token_valid);
        let valid = tokens.filter(|(_, valid)| **valid).flat_map(|(margins, _)| margins);
        let (low, high) = valid.fold((f32::MAX, f32::MIN), |(low, high), margin| {
            (low.min(*margin), high.max(*margin))
        });
        high - low
    });
    Ok(layers.collect())
}

/// Pending values of each layer after one step, and how the range of margins was found.
fn pending(config: &RunConfig, batch: &Batch) -> (Vec<Vec<f32>>, MarginRange) {
    let of_ranks = on_every_rank(config, |mut rank| {
        rank.step(batch)?;
        Ok((rank.state.pending, rank.balancing.range))
    });
    let bits = |rank: &(Vec<Vec<f32>>, MarginRange)| -> Vec<u32> {
        rank.0.iter().flatten().map(|value| value.to_bits()).collect()
    };
    assert!(of_ranks.iter().all(|rank| bits(rank) == bits(&of_ranks[0])), "ranks differ");
    of_ranks[0].clone()
}

#[test]
fn quantiles_over_ranks_are_those_of_one_rank() {
    let config = toy::config([1, 1], &[]);
    let batch = toy::batch(&config, 11);
    let ranges = on_every_rank(&config, |rank| margin_ranges(&rank, &batch)).remove(0);
    let bins = config.model.quantile_bins as f32;
    let (one_pass, range) = pending(&config, &batch);
    assert_eq!(range, MarginRange::OnePass);
    let (four_ranks, range) = pending(&toy::config([2, 2], &[]), &batch);
    assert_eq!(range, MarginRange::OnePass);
    let micro = ["batch.micro_rows=2"];
    let (grid, range) = pending(&toy::config([1, 1], &micro), &batch);
    assert_eq!(range, MarginRange::Grid);
    let (grid_of_four, range) = pending(&toy::config([2, 2], &micro), &batch);
    assert_eq!(range, MarginRange::Grid);
    for (layer, range) in ranges.iter().enumerate() {
        // The aligned grid takes the least power of two that holds the range.
        let live = range / bins;
        let aligned = 2f32.powi((range / (bins - 1.0)).log2().ceil() as i32);
        assert!(one_pass[layer].iter().any(|beta| beta.abs() > 10.0 * aligned), "betas are not 0");
        let apart = |name: &str, found: &[f32], bin: f32| {
            let distance = found.iter().zip(&one_pass[layer]).map(|(a, b)| (a - b).abs());
            let distance = distance.fold(0.0, f32::max);
            println!("layer {layer}, {name}: {:.2} bins apart", distance / bin);
            // A hair more: the last bit of a value is not a bin.
            assert!(distance <= 1.001 * bin, "layer {layer}, {name}: {distance}, bins of {bin}");
        };
        apart("one pass over four ranks", &four_ranks[layer], live);
        apart("grid on one rank", &grid[layer], aligned);
        apart("grid over four ranks", &grid_of_four[layer], aligned);
        let distance = grid[layer].iter().zip(&grid_of_four[layer]).map(|(a, b)| (a - b).abs());
        let distance = distance.fold(0.0, f32::max);
        println!("layer {layer}, grids: {:.2} bins apart", distance / aligned);
        assert!(distance <= 1.001 * aligned, "layer {layer}: grids are {distance} apart");
    }
}
