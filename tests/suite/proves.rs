//! Stretches of a run that are trained again, whatever happened to the run meanwhile.

use std::path::Path;

use fulmar::train::TrainError;
use fulmar::train::prove::{Proof, ProveOptions, prove};
use fulmar::train::{DeviceChoice, run};

use crate::tiny::Tiny;

fn proof(run: &Path, from: u64, until: u64) -> Result<Proof, TrainError> {
    let (steps, until, device) = (Some(until - from), Some(until), DeviceChoice::Cpu);
    prove(&ProveOptions { run: run.to_owned(), steps, until, device })
}

/// Fails unless the run did the steps after `from` again, bit for bit.
fn assert_proved(run: &Path, from: u64, until: u64) {
    let proof = proof(run, from, until).unwrap_or_else(|error| panic!("{}", error.chain()));
    proof.verdict().unwrap_or_else(|_| panic!("{proof}"));
    assert_eq!((proof.from, proof.until), (from, until));
    assert_eq!(proof.figures["train/loss"], until - from);
}

fn pieces(tiny: &Tiny, out: &str, pieces: &[(u64, &[&str])]) {
    for (end, overrides) in pieces {
        let mut options = tiny.options(out);
        (options.resume, options.stop_after) = (true, Some(*end));
        run(&tiny.config(overrides), &options).expect("a piece of the run");
    }
}

#[test]
fn a_batch_that_one_attempt_was_told_to_leave_out_is_left_out_of_the_proof() {
    let tiny = Tiny::new();
    let plain = ["schedule.steps=8", "checkpoint.every=2"];
    let told = [&plain[..], &["guard.skip_batches=[5]"]].concat();
    pieces(&tiny, "run", &[(4, &plain), (6, &told), (8, &plain)]);
    assert_proved(&tiny.path("run"), 4, 6);
    // From before the attempt that was told, and from after the batch.
    assert_proved(&tiny.path("run"), 2, 8);
    assert_proved(&tiny.path("run"), 6, 8);
}

#[test]
fn a_stretch_of_other_ranks_is_trained_by_as_many() {
    let tiny = Tiny::new();
    let one = ["schedule.steps=6", "checkpoint.every=2"];
    let two = [&one[..], &["parallel.shards=2", "parallel.dispatch={kind=\"ring\"}"]].concat();
    pieces(&tiny, "run", &[(2, &one), (4, &two), (6, &one)]);
    for from in [2, 4] {
        assert_proved(&tiny.path("run"), from, from + 2);
    }
}

#[test]
fn longer_rows_that_opened_within_a_stretch_or_at_its_beginning_open_again() {
    let tiny = Tiny::new();
    let longer = ["schedule.steps=12", "checkpoint.every=2", "context=[{from_step=5, seq_len=64}]"];
    tiny.run("run", &longer).expect("twelve steps");
    // Rows grow with batch 8.
    for from in [6, 8, 10] {
        assert_proved(&tiny.path("run"), from, 12);
    }
}

#[test]
fn a_branch_of_a_run_is_proved_by_its_own_checkpoints() {
    let tiny = Tiny::new();
    let plain = ["schedule.steps=8", "checkpoint.every=2"];
    pieces(&tiny, "run", &[(4, &plain)]);
    let place = tiny.path("run");
    let at = fulmar::train::operations::position(&tiny.config(&plain), &place, None);
    let at = at.expect("step 4");
    let plan = tiny.config(&plain);
    let branch = fulmar::train::operations::branch(&plan, &place, at, "branch", 10).expect("valid");
    let folder = tiny.path("branch");
    fulmar::train::operations::found_branch(&branch, &folder, "a look").expect("made");
    let mut options = tiny.options("branch");
    options.resume = true;
    run(&branch, &options).expect("six steps");
    assert_proved(&folder, 6, 8);
    assert_proved(&folder, 8, 10);
}
