//! Whole runs over ranks: exchanges that switch, logs, resumes, evaluations.

use std::path::Path;

use fulmar::data::Batch;
use fulmar::ep::transport::run_world;
use fulmar::ep::{Dispatcher, Layout, World};
use fulmar::eval::{EvalReport, ModelScorer, evaluate};
use fulmar::train::state::{self, TrainState};
use fulmar::train::telemetry::Metrics;
use fulmar::train::{RunConfig, TrainError, assemble, compare_weights, run};

use crate::process;
use crate::tiny::{Tiny, assert_same_files, config_in, logged, options_in, steps_from};
use crate::toy::{self, DEADLINE, try_ranks};

/// Eight steps over 2 x 2 ranks, with a checkpoint every other step.
const FOUR_RANKS: [&str; 5] = [
    "schedule.steps=8",
    "batch.rows=8",
    "checkpoint.every=2",
    "parallel.replicas=2",
    "parallel.shards=2",
];

/// A pooled wave that drops on both sides, then the ragged exchange that drops nothing.
const SWITCHING: [&str; 2] = [
    "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2, capacity_factor=0.9, \
     transport_capacity_factor=0.9}",
    "parallel.switches=[{step=4, dispatch={kind=\"ragged\"}}]",
];

fn switching() -> Vec<&'static str> {
    FOUR_RANKS.into_iter().chain(SWITCHING).collect()
}

#[test]
fn a_run_goes_on_through_a_switch_and_resumes_to_the_same_bits() {
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "halves");
        options.resume = true;
        let summary = run(&config_in(&folder, &switching()), &options).expect("the second half");
        assert_eq!((summary.steps_taken, summary.state.step), (5, 8));
        return;
    }
    let tiny = Tiny::new();
    tiny.run("whole", &switching()).expect("eight steps");
    assert_went_on(&steps_from(&tiny.path("whole"), 0));

    let mut options = tiny.options("halves");
    options.stop_after = Some(3);
    run(&tiny.config(&switching()), &options).expect("the first half");
    let name = "ranks_runs::a_run_goes_on_through_a_switch_and_resumes_to_the_same_bits";
    let said = process::again(name, &tiny.path(""));
    assert!(said.contains("(step 3)"), "{said}");
    assert!(said.contains("step 4: exchange pooled_wave -> ragged"), "{said}");
    for step in [4, 6, 8] {
        assert_same_files(&tiny.checkpoint("whole", step), &tiny.checkpoint("halves", step));
    }
    assert_eq!(steps_from(&tiny.path("whole"), 4), steps_from(&tiny.path("halves"), 4));
}

fn assert_went_on(steps: &[Metrics]) {
    let loss = |line: &Metrics| line["train/loss"].as_f64().expect("a number");
    let losses: Vec<f64> = steps.iter().map(loss).collect();
    assert_eq!(losses.len(), 8);
    assert!(losses[7] < losses[0] - 0.5, "{losses:?}");
    for pair in losses.windows(2) {
        assert!(pair[1] < pair[0] + 0.3, "a jump of the loss: {losses:?}");
    }
    for line in steps {
        let step = line["step"].as_u64().expect("a step");
        let exchange = if step <= 4 { "pooled_wave" } else { "ragged" };
        assert_eq!(line["moe/exchange"], exchange, "step {step}");
        let drops = |side: &str| count(line, &format!("moe/{side}_dropped_assignments"));
        let any = (drops("sender") > 0, drops("receiver") > 0);
        assert_eq!(any, (step <= 4, step <= 4), "step {step}: drops at sender, receiver");
    }
}

fn count(line: &Metrics, name: &str) -> u64 {
    let value = line.get(name).and_then(serde_json::Value::as_u64);
    value.unwrap_or_else(|| panic!("no count `{name}` in {line:?}"))
}

#[test]
fn an_exchange_with_room_has_the_losses_of_one_rank_at_every_step() {
    let tiny = Tiny::new();
    let alone = ["schedule.steps=6", "batch.rows=8"];
    tiny.run("alone", &alone).expect("six steps");
    let ranks = [
        "parallel.replicas=2",
        "parallel.shards=2",
        "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2, capacity_factor=16, \
         transport_capacity_factor=2}",
        "parallel.switches=[{step=2, dispatch={kind=\"ring\"}}, {step=4, dispatch={kind=\"ragged\"}}]",
    ];
    tiny.run("ranks", &[&alone[..], &ranks[..]].concat()).expect("six steps");
    let (alone, ranks) = (steps_from(&tiny.path("alone"), 0), steps_from(&tiny.path("ranks"), 0));
    for (alone, ranks) in alone.iter().zip(&ranks) {
        for metric in ["train/loss", "grad/norm/total", "train/router/routing_entropy_mean"] {
            let [needed, found] = [alone, ranks].map(|line| line[metric].as_f64().expect("finite"));
            let apart = ((found - needed) / needed).abs();
            println!("{metric} of step {}: {apart:.1e} apart", alone["step"]);
            assert!(apart <= 1e-4, "{metric} of step {}: {found}, needed {needed}", alone["step"]);
        }
        assert_eq!(
            ranks["data/digest"], alone["data/digest"],
            "each rank reads its rows of one batch"
        );
    }
}

#[test]
fn the_one_log_of_four_ranks_accounts_for_every_assignment_token_and_byte() {
    let tiny = Tiny::new();
    // Two micro-batches of each rank, so that there is something to add up.
    let config = tiny.config(&[&switching()[..], &["batch.micro_rows=1"]].concat());
    run(&config, &tiny.options("run")).expect("eight steps");
    let logs = files_under(&tiny.path("run")).into_iter();
    let logs: Vec<String> = logs.filter(|name| name.ends_with(".jsonl")).collect();
    assert_eq!(logs, ["history.jsonl", "loads.jsonl", "metrics.jsonl"]);
    // Eight steps and the evaluation at the end, once each.
    assert_eq!(logged(&tiny.path("run")).len(), 9);

    let (layers, k) = (config.model.num_layers, config.model.num_experts_per_token as u64);
    let tokens = config.tokens_per_step() * layers as u64;
    for line in steps_from(&tiny.path("run"), 0) {
        let total = |name: &str| count(&line, &format!("moe/{name}"));
        let valid_tokens = total("valid_assignments") / k;
        assert_eq!(total("valid_assignments") + total("padding_assignments"), tokens * k);
        let lost = |j: u64| total(&format!("tokens_that_lost_{j}"));
        assert_eq!((0..=k).map(lost).sum::<u64>(), valid_tokens);
        let lost_assignments = (0..=k).map(|j| j * lost(j)).sum::<u64>();
        assert_eq!(lost_assignments, total("dropped_assignments"));
        for side in ["sender_dropped_assignments", "receiver_dropped_assignments"] {
            let of_rank = |rank| total(&format!("rank_{rank}/{side}"));
            assert_eq!((0..4).map(of_rank).sum::<u64>(), total(side), "{side} by source rank");
            let of_layer = |layer| total(&format!("layer_{layer}/{side}"));
            assert_eq!((0..layers).map(of_layer).sum::<u64>(), total(side), "{side} by layer");
        }
        for bytes in ["wire_bytes", "wire_header_bytes"] {
            let of_layer = |layer| total(&format!("layer_{layer}/{bytes}"));
            assert_eq!((0..layers).map(of_layer).sum::<u64>(), total(bytes), "{bytes} by layer");
        }
        assert!(!line.contains_key("moe/rank_4/sender_dropped_assignments"));
        assert_eq!(total("wire_bytes"), wire_bytes(&config, &line), "step {}", line["step"]);
    }
}

/// The bytes that the rules of SPEC section 3 let leave four ranks in a step, forward and backward.
fn wire_bytes(config: &RunConfig, line: &Metrics) -> u64 {
    let (shards, layers) = (2, config.model.num_layers as u64);
    let (experts, k) = (config.model.num_experts as u64, config.model.num_experts_per_token as u64);
    let row_bytes = config.model.latent_dim as u64 * 4;
    // Forward passes of all ranks.
    let passes = config.batch.rows / config.micro_rows() * layers;
    if line["moe/exchange"] == "pooled_wave" {
        // There and back, and the same backward, each in two waves and with a header: a rank sends
        // its one peer p = ceil(0.9 n / (P W)) rows and ceil(p / c) header rows.
        let n = config.micro_rows() * config.model.max_seq_len as u64 * k;
        let pool = (n as f64 * 0.9 / 4.0).ceil() as u64;
        let rows = pool + pool.div_ceil(config.model.latent_dim as u64);
        return passes * 4 * 2 * rows * row_bytes;
    }
    // Counts for each expert and a flag, and then what goes to the peer's experts; how many of the
    // kept rows do is not in the log, so only the rest is known: whole rows, there and back twice.
    let header = passes * (shards - 1) * (experts + 1) * 8;
    assert_eq!(count(line, "moe/wire_header_bytes"), header);
    let rows = count(line, "moe/wire_bytes") - header;
    assert!(rows > 0 && rows.is_multiple_of(4 * row_bytes), "{rows} bytes of rows");
    assert!(rows / (4 * row_bytes) < count(line, "moe/valid_assignments"), "{rows} bytes");
    rows + header
}

fn files_under(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            names.extend(files_under(&path));
        } else {
            names.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        }
    }
    names.sort();
    names
}

#[test]
fn an_evaluation_over_ranks_is_that_of_one_rank() {
    let tiny = Tiny::new();
    let data = assemble::data(&tiny.config(&[])).expect("a readable corpus");
    let rows = data.heldout.num_rows();
    let report = |[replicas, shards]: [usize; 2], batch_rows: usize| -> EvalReport {
        let config = tiny.config(&[]);
        let layout = Layout::new(replicas, shards);
        let reports = run_world(layout.ranks(), DEADLINE, |transport| {
            let world = World::new(transport, layout)?;
            let device = fulmar::train::device::open(tiny.options("").device)?.device;
            let state = TrainState::new(&config, &world, &device)?;
            let dropless = Dispatcher::dropless(config.model.num_experts, &world.expert)?;
            let model = state.evaluation_model(&state::balancing(&config));
            let scorer = ModelScorer::new(&model, &dropless, &device);
            let nats = |batch: &Batch| scorer.nats(batch);
            Ok::<_, TrainError>(evaluate(&data.heldout, batch_rows, 0, &world.all, nats)?)
        });
        let mut reports = reports.unwrap_or_else(|error| panic!("{layout:?}: {error}"));
        assert!(reports.iter().all(|report| *report == reports[0]), "every rank has the whole");
        reports.swap_remove(0)
    };
    let needed = report([1, 1], 8);
    assert_eq!((needed.total().documents, needed.partial_documents), (12, 0));
    for layout in [[1, 2], [1, 4], [2, 2], [4, 1], [1, 8]] {
        // The last batch leaves ranks without rows.
        for batch_rows in [3, 5] {
            assert!(!rows.is_multiple_of(batch_rows * layout[0] * layout[1]), "{rows} rows");
            let found = report(layout, batch_rows);
            assert_eq!(found, needed, "{layout:?}, {batch_rows} rows a batch");
        }
    }
}

#[test]
fn one_bit_of_one_ranks_weights_is_found_and_both_ranks_are_named() {
    let config = toy::config([2, 2], &[]);
    let compared = |tampered: usize, at: &str| {
        try_ranks(&config, DEADLINE, |mut rank| {
            if rank.world.rank() == tampered {
                rank.change_weights(|path, data| {
                    if path == at {
                        let value = &mut data.as_mut_slice::<f32>().expect("f32")[7];
                        *value = f32::from_bits(value.to_bits() ^ 1);
                    }
                });
            }
            compare_weights(&rank.state, rank.world)
        })
    };
    compared(4, "").expect("all have the same");
    for tampered in 1..4 {
        let error = compared(tampered, "layers.1.attention.w_q").expect_err("one bit").to_string();
        let both = error.contains("rank 0 has") && error.contains(&format!("rank {tampered} has"));
        assert!(both && error.contains("`weights of shared parameters`"), "{error}");
    }
    for (tampered, [left, right]) in [(0, [0, 2]), (1, [1, 3]), (2, [0, 2]), (3, [1, 3])] {
        let error =
            compared(tampered, "layers.0.moe.experts.w_up").expect_err("one bit").to_string();
        let both = [left, right].map(|rank| error.contains(&format!("rank {rank} has")));
        assert!(both == [true; 2] && error.contains("`weights of experts`"), "{tampered}: {error}");
    }
}
