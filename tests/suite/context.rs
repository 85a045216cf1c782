//! Rows that become longer in the course of a run.

use std::path::Path;

use fulmar::train::context::ContextStage;
use fulmar::train::evaluate::{EvaluateOptions, evaluate};
use fulmar::train::history::History;
use fulmar::train::telemetry::Metrics;
use fulmar::train::{DeviceChoice, assemble, run};

use crate::process;
use crate::tiny::{Tiny, assert_same_files, config_in, options_in, steps_from};

/// Blocks of four batches; rows of 64 tokens may open from step 5 on, so at batch 8 or later.
const LONGER: [&str; 4] = [
    "schedule.steps=16",
    "checkpoint.every=2",
    "context=[{from_step=5, seq_len=64}]",
    "parallel.compare_weights_every=4",
];

/// Two shards whose exchange drops far more than the gate allows, until the ragged one takes over.
const DROPPING: [&str; 3] = [
    "parallel.shards=2",
    "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2, capacity_factor=0.8, \
     transport_capacity_factor=0.8}",
    "parallel.switches=[{step=8, dispatch={kind=\"ragged\"}}]",
];

fn behind_a_gate() -> Vec<&'static str> {
    LONGER.into_iter().chain(DROPPING).collect()
}

fn lengths(steps: &[Metrics]) -> Vec<u64> {
    steps.iter().map(|line| line["data/seq_len"].as_u64().expect("a length")).collect()
}

/// The events of a kind, by step.
fn events(run: &Path, what: &str) -> Vec<(u64, String)> {
    let events = History::read(run).expect("a history").into_iter();
    events.filter(|event| event.what == what).map(|event| (event.step, event.text)).collect()
}

#[test]
fn longer_rows_open_at_a_boundary_of_blocks_with_as_many_tokens() {
    let tiny = Tiny::new();
    let config = tiny.config(&LONGER);
    run(&config, &tiny.options("run")).expect("sixteen steps");
    let steps = steps_from(&tiny.path("run"), 0);
    let expected: Vec<u64> = (0..16).map(|batch| if batch < 8 { 32 } else { 64 }).collect();
    assert_eq!(lengths(&steps), expected);
    let [(step, text)] = &events(&tiny.path("run"), "operation")[..] else { panic!("one event") };
    assert!(*step == 8 && text.contains("rows of 64 tokens"), "{step}: {text}");

    // The rows are those of the plan with the stage open, whoever asks for them.
    let mut open = config.clone();
    open.context[0].opened_at = Some(8);
    let data = assemble::data(&open).expect("a readable corpus");
    for (batch, line) in steps.iter().enumerate() {
        let tokens = config.tokens_per_step();
        let rows = data.rows.rows_of_batch(batch as u64, tokens).expect("whole rows");
        let batch = data.rows.batch(rows);
        assert_eq!(batch.num_rows as u64 * batch.seq_len as u64, tokens);
        assert_eq!(line["data/digest"], format!("{:016x}", batch.digest()));
    }
}

#[test]
fn a_gate_holds_longer_rows_back_while_too_much_is_dropped() {
    let tiny = Tiny::new();
    tiny.run("run", &behind_a_gate()).expect("sixteen steps");
    let expected: Vec<u64> = (0..16).map(|batch| if batch < 12 { 32 } else { 64 }).collect();
    assert_eq!(lengths(&steps_from(&tiny.path("run"), 0)), expected);
    let held = events(&tiny.path("run"), "context_held");
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0].0 == 8 && held[0].1.contains("3.00% allowed"), "{held:?}");
    assert_eq!(events(&tiny.path("run"), "context_never_opened"), []);

    // Without the other exchange they wait for good, and the end says so.
    let dropping = [&LONGER[..], &DROPPING[..2]].concat();
    tiny.run("waiting", &dropping).expect("sixteen steps");
    let never = events(&tiny.path("waiting"), "context_never_opened");
    assert!(never.len() == 1 && never[0] == (16, "rows of 64 tokens never opened".to_owned()));
}

#[test]
fn a_run_killed_around_a_change_of_length_goes_on_with_the_same_bits() {
    const NAME: &str = "context::a_run_killed_around_a_change_of_length_goes_on_with_the_same_bits";
    if let Some(folder) = process::handed_over() {
        let text = std::fs::read_to_string(folder.join("stop")).expect("a step");
        let mut options = options_in(&folder, "pieces");
        options.resume = true;
        options.stop_after = Some(text.parse().expect("a number"));
        run(&config_in(&folder, &behind_a_gate()), &options).expect("a piece of the run");
        return;
    }
    let tiny = Tiny::new();
    tiny.run("whole", &behind_a_gate()).expect("sixteen steps");
    // In the midst of the interval that the gate looks at, at its end, and after the change.
    for stop in [7, 10, 12, 13, 16] {
        std::fs::write(tiny.path("stop"), stop.to_string()).expect("written");
        process::again(NAME, &tiny.path(""));
    }
    let (whole, pieces) = (tiny.path("whole"), tiny.path("pieces"));
    assert_eq!(steps_from(&whole, 0), steps_from(&pieces, 0));
    assert_eq!(events(&whole, "operation"), events(&pieces, "operation"));
    for step in [12, 14, 16] {
        assert_same_files(&tiny.checkpoint("whole", step), &tiny.checkpoint("pieces", step));
    }
}

#[test]
fn a_run_goes_on_from_the_very_boundary_at_which_longer_rows_had_opened() {
    let tiny = Tiny::new();
    tiny.run("whole", &LONGER).expect("sixteen steps");
    tiny.run("run", &LONGER).expect("sixteen steps");
    // The checkpoint of step 8 was saved before the stage opened; it is the newest that is left.
    for step in [10, 12, 14, 16] {
        std::fs::remove_dir_all(tiny.checkpoint("run", step)).expect("removed");
    }
    let mut options = tiny.options("run");
    options.resume = true;
    run(&tiny.config(&LONGER), &options).expect("eight more steps");
    assert_same_files(&tiny.checkpoint("whole", 16), &tiny.checkpoint("run", 16));
}

#[test]
fn a_lost_record_of_longer_rows_is_known_from_the_checkpoint() {
    let tiny = Tiny::new();
    tiny.run("whole", &LONGER).expect("sixteen steps");
    let mut options = tiny.options("run");
    options.stop_after = Some(10);
    run(&tiny.config(&LONGER), &options).expect("ten steps");
    let file = tiny.path("run").join("history.jsonl");
    let history = std::fs::read_to_string(&file).expect("a history");
    let left = history.lines().filter(|line| !line.contains("context_opened"));
    let left: String = left.flat_map(|line| [line, "\n"]).collect();
    assert_ne!(left, history);
    std::fs::write(&file, left).expect("written");
    options.resume = true;
    for stop in [12, 16] {
        options.stop_after = Some(stop);
        run(&tiny.config(&LONGER), &options).expect("a piece of the run");
    }
    assert_same_files(&tiny.checkpoint("whole", 16), &tiny.checkpoint("run", 16));
    let [(step, text)] = &events(&tiny.path("run"), "operation")[..] else { panic!("one event") };
    assert!(*step == 10 && text.contains("since batch 8"), "{step}: {text}");
}

#[test]
fn an_attempt_at_another_layout_decides_anew_when_longer_rows_open() {
    let tiny = Tiny::new();
    // One rank drops nothing and opens at batch 8; two drop too much and wait.
    tiny.run("run", &LONGER).expect("sixteen steps");
    for step in [8, 10, 12, 14, 16] {
        std::fs::remove_dir_all(tiny.checkpoint("run", step)).expect("removed");
    }
    let dropping = [&LONGER[..], &DROPPING[..2]].concat();
    let mut options = tiny.options("run");
    options.resume = true;
    for stop in [11, 16] {
        options.stop_after = Some(stop);
        run(&tiny.config(&dropping), &options).expect("a piece of the run");
    }
    let steps = steps_from(&tiny.path("run"), 7);
    // The log still has what the first attempt did of steps 7 to 16.
    assert_eq!(lengths(&steps[10..]), [32; 10]);
}

#[test]
fn a_checkpoint_of_longer_rows_is_evaluated_as_its_run_did() {
    let tiny = Tiny::new();
    let summary = tiny.run("run", &LONGER).expect("sixteen steps");
    let options = EvaluateOptions { device: DeviceChoice::Cpu, ..EvaluateOptions::default() };
    let mut again = Vec::new();
    let each = &mut |_: &Path, evaluation| {
        again.push(evaluation);
        Ok(())
    };
    evaluate(&[tiny.path("run")], &options, each).expect("evaluated");
    let [again] = &again[..] else { panic!("one checkpoint") };
    let heldout = summary.heldout.expect("evaluated at the end");
    let again = &again.heldout().dropless.report;
    assert_eq!(again.total().loss(), heldout.total().loss());
    assert_eq!(again.total().tokens, heldout.total().tokens);
}

#[test]
fn rows_that_ranks_cannot_share_are_refused_before_anything_is_written() {
    let tiny = Tiny::new();
    let mut config = tiny.config(&["parallel.replicas=2"]);
    config.context = vec![ContextStage::new(5, 128)];
    let text = run(&config, &tiny.options("run")).expect_err("one row for two ranks").to_string();
    assert!(
        text.contains("`context[0].seq_len` is 128, needed a length of which 2 ranks"),
        "{text}"
    );
    assert!(!tiny.path("run").exists());
}
