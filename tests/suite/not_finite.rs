//! A step that is not finite leaves no trace but a count.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use fulmar::ep::World;
use fulmar::model::{ModelInput, weights};
use fulmar::prelude::*;
use fulmar::train::checkpoint::save::Run;
use fulmar::train::history::History;
use fulmar::train::{TrainError, checkpoint, exit};

use crate::tiny::{Bench, Tiny, logged};

/// Replaces the first value of the parameter at `path`.
fn poison(bench: &mut Bench, path: &str, value: f32) {
    let mut source = weights::export(&bench.state.model);
    let data = source.get_mut(path).unwrap_or_else(|| panic!("no parameter `{path}`"));
    data.as_mut_slice::<f32>().expect("f32")[0] = value;
    let model = bench.state.model.clone();
    bench.state.model = weights::import(model, |path| source.remove(path)).expect("all weights");
}

/// Bytes of everything in the state: NaN is not equal to itself, its bytes are.
fn bytes(bench: &Bench) -> (BTreeMap<String, Vec<u8>>, Vec<Vec<u32>>, u64) {
    let tensors = weights::export(&bench.state.model).into_iter();
    let tensors = tensors.chain(bench.state.optimizer.export());
    let tensors =
        tensors.map(|(name, data): (String, TensorData)| (name, data.as_bytes().to_vec()));
    let bits = |layer: &Vec<f32>| layer.iter().map(|value| value.to_bits()).collect();
    let pending = bench.state.pending.iter().map(bits).collect();
    (tensors.collect(), pending, bench.state.step)
}

#[test]
fn a_step_that_is_not_finite_changes_nothing_but_the_position_in_the_data() {
    let tiny = Tiny::new();
    // In the order of the forward pass: scores of NaN, which no router may use; a loss that is
    // finite with a gradient whose norm is not (squares beyond f32); a loss of infinity; of NaN.
    let poisons = [
        ("layers.0.moe.router.weight", f32::NAN),
        ("head.weight", 1e14),
        ("head.weight", f32::MAX),
        ("head.weight", f32::NAN),
    ];
    for (path, value) in poisons {
        let mut bench = Bench::new(tiny.config(&[]));
        assert!(bench.step().updated && bench.step().updated, "{path}: two sound steps first");
        poison(&mut bench, path, value);
        let before = bytes(&bench);
        let report = bench.step();
        let (loss, norm) = (report.loss, report.grad_norm);
        assert!(!report.updated, "{path} = {value}: loss {loss}, gradient norm {norm}");
        if value == 1e14 {
            assert!(loss.is_finite() && !norm.is_finite(), "loss {loss}, gradient norm {norm}");
        }
        assert!(bytes(&bench) == before, "{path} = {value}: the state has changed");
        assert_eq!(bench.state.batches, 3, "{path}: the batch counts as taken");
    }
}

#[test]
fn a_run_logs_skipped_steps_and_stops_after_the_allowed_number() {
    let tiny = Tiny::new();
    // An evaluation belongs to an update: a skipped step must not repeat that of step 1.
    let config = tiny.config(&["guard.max_skipped_steps=2", "evaluation.every=1"]);
    let mut bench = Bench::new(config.clone());
    bench.step();
    poison(&mut bench, "head.weight", f32::NAN);
    let out = tiny.path("poisoned");
    let storage = tiny.storage("poisoned");
    let consumed = bench.data.consumed(config.batch.rows);
    let run_of = Run { consumed, ..Run::new(&storage, &config, &bench.data.digest) };
    checkpoint::save(&run_of, &bench.state, &World::solo()).expect("saved");

    let mut options = tiny.options("poisoned");
    options.resume = true;
    let error = run(&config, &options).expect_err("no step is finite").to_string();
    assert!(error.contains("step 1 is not finite"), "{error}");
    let lines = logged(&out);
    assert_eq!(lines.len(), 3, "two skipped steps are allowed, the third ends the run");
    for line in lines {
        assert_eq!(line["optim/skipped_step"], 1);
        assert_eq!(line["step"], 1);
        assert_eq!(line["train/loss"], "NaN");
    }
}

#[test]
fn a_batch_that_ends_a_run_twice_is_not_tried_again_until_it_is_left_out() {
    let tiny = Tiny::new();
    let stop = "guard.on_not_finite=\"stop\"";
    let config = tiny.config(&[stop]);
    let mut bench = Bench::new(config.clone());
    bench.step();
    poison(&mut bench, "head.weight", f32::NAN);
    let out = tiny.path("poisoned");
    let storage = tiny.storage("poisoned");
    let consumed = bench.data.consumed(config.rows_taken(bench.state.batches));
    let run_of = Run { consumed, ..Run::new(&storage, &config, &bench.data.digest) };
    checkpoint::save(&run_of, &bench.state, &World::solo()).expect("saved");
    let digest = format!("{:016x}", bench.batch().digest());

    let mut options = tiny.options("poisoned");
    options.resume = true;
    for end in 1..=2 {
        let error = run(&config, &options).expect_err("no step is finite");
        assert!(matches!(error, TrainError::NotFinite { step: 1, .. }), "end {end}: {error}");
        assert_eq!(exit::status_of(&error), 4);
        assert!(error.to_string().contains(&digest), "end {end}: {error}");
    }
    let lines = logged(&out).len();
    let error = run(&config, &options).expect_err("a third time");
    let said = error.to_string();
    assert_eq!(exit::status_of(&error), 4);
    assert!(
        said.contains(&format!("batch 1 (digest {digest}) has ended this run 2 times")),
        "{said}"
    );
    assert!(said.contains("--skip-batch 1"), "{said}");
    assert_eq!(logged(&out).len(), lines, "no step was tried");

    // Left out, the run goes on to the next batch; told once, it remembers.
    let config = tiny.config(&[stop, "guard.skip_batches=[1]"]);
    let error = run(&config, &options).expect_err("the weights are still poisoned");
    assert!(matches!(error, TrainError::NotFinite { .. }), "{error}");
    assert!(!error.to_string().contains(&digest), "another batch: {error}");
    let config = tiny.config(&[stop]);
    let error = run(&config, &options).expect_err("the weights are still poisoned");
    assert!(matches!(error, TrainError::NotFinite { .. }), "{error}");
    assert!(!error.to_string().contains(&digest), "another batch: {error}");
    let events = History::read(&out).expect("a history");
    let left_out: Vec<_> = events.iter().filter(|event| event.what == "batch_left_out").collect();
    assert_eq!(left_out.len(), 2);
    assert!(left_out.iter().all(|event| event.detail["batch"] == 1), "{left_out:?}");
}

#[test]
fn skipped_steps_of_earlier_attempts_count() {
    let tiny = Tiny::new();
    let config = tiny.config(&["guard.max_skipped_steps=2"]);
    let mut bench = Bench::new(config.clone());
    bench.step();
    // As if two batches had been skipped, and one left out on request.
    bench.state.batches += 3;
    poison(&mut bench, "head.weight", f32::NAN);
    let storage = tiny.storage("poisoned");
    let consumed = bench.data.consumed(config.rows_taken(bench.state.batches));
    let run_of = Run { consumed, ..Run::new(&storage, &config, &bench.data.digest) };
    checkpoint::save(&run_of, &bench.state, &World::solo()).expect("saved");
    let left_out = fulmar::train::history::Event::now(1, 1, "batch_left_out", "").with("batch", 2);
    std::fs::create_dir_all(tiny.path("poisoned")).expect("made");
    let history = History::open(&tiny.path("poisoned"));
    history.and_then(|mut history| history.append(&left_out)).expect("written");

    let mut options = tiny.options("poisoned");
    options.resume = true;
    run(&config, &options).expect_err("no step is finite");
    assert_eq!(logged(&tiny.path("poisoned")).len(), 1, "the budget was spent before");
}

#[test]
fn the_dispatcher_refuses_tokens_whose_router_scores_are_not_finite() {
    let mut bench = Bench::new(Tiny::new().config(&[]));
    poison(&mut bench, "layers.1.moe.router.weight", f32::NAN);
    let batch = bench.batch();
    let shape = [batch.num_rows, batch.seq_len];
    let input =
        ModelInput::new(batch.tokens, batch.segment_ids, batch.token_valid, shape, &bench.device);
    let no_balancing: Option<&QuantileBalancing> = None;
    let error = bench.state.model.forward(&input, &Local::new(8), no_balancing);
    let error = error.expect_err("no expert is chosen at random").to_string();
    let needed = "layer 1: token 0 has no expert in slot 0: its router scores are not finite";
    assert_eq!(error, needed);
}
