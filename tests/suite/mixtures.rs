//! Mixtures through the binary's own commands: plans, their refusals, and what a change changes.

use std::path::Path;

use clap::Parser as _;
use fulmar::train::cli::Cli;
use fulmar::train::{TrainError, assemble, exit, run};

use crate::tiny::{Tiny, chain, steps_from};

fn train(args: &[&str]) -> Result<(), TrainError> {
    let cli = Cli::try_parse_from([&["train"], args].concat()).unwrap_or_else(|e| panic!("{e}"));
    cli.command.execute()
}

fn plan(args: &[&str]) -> Result<(), TrainError> {
    train(&[&["data", "mixture", "plan"], args].concat())
}

#[track_caller]
fn refused(result: Result<(), TrainError>, parts: &[&str]) {
    let error = result.expect_err("it is refused");
    let said = chain(&error);
    for part in parts {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    assert_eq!(exit::status_of(&error), 3, "{said}");
}

#[test]
fn the_shipped_mixture_is_planned_from_any_folder() {
    plan(&["harrier"]).expect("it repeats nothing too often");
    plan(&["harrier", "--tokens", "18750000000000", "--at", "190650", "--json"])
        .expect("as published");
    plan(&["harrier", "--stages"]).expect("printed");
    // Ten times the tokens are 20 epochs of the cell that is repeated most.
    let parts = ["more than 8 times", "c12q4 (20.10)"];
    refused(plan(&["harrier", "--steps", "3902510"]), &parts);
    let short = ["harrier", "--tokens", "47900000000", "--simulate"];
    refused(plan(&short), &["c22q0", "0.2554%", "name a tail cell"]);
    plan(&[&short[..], &["--tail", "c22q1"]].concat()).expect("its weight goes to the tail");
    let tail = [&short[..], &["--tail", "c40q0"]].concat();
    refused(plan(&tail), &["`simulated_epoching.tail` is c40q0"]);
    refused(plan(&["harrier", "--steps", "10"]), &["every 48 of the run's 10 steps"]);
}

/// A run of five of twenty steps: 20 rows in blocks of 16.
fn five_steps(tiny: &Tiny, overrides: &[&str]) {
    let mut options = tiny.options("run");
    options.stop_after = Some(5);
    run(&tiny.config(&[&TWENTY[..], overrides].concat()), &options).expect("five steps");
}

const TWENTY: [&str; 2] = ["schedule.steps=20", "checkpoint.every=1"];

#[test]
fn a_runs_mixture_is_planned_and_a_change_of_it_compared_where_it_stands() {
    let tiny = Tiny::new();
    five_steps(&tiny, &[]);
    let folder = tiny.path("run");
    let folder = folder.to_str().expect("a plain path");
    plan(&[folder]).expect("two epochs at most");
    refused(plan(&[folder, "--steps", "2000"]), &["2 cells", "prose/q1", "verse/q1"]);
    let file = tiny.path("stages.toml");
    let diff = |from_block: u64, cell: &str| {
        let weights = format!("weights = {{ \"prose/q1\" = 0.25, \"{cell}\" = 0.75 }}");
        let text = format!("[[stages]]\nfrom_block = {from_block}\n{weights}\n");
        std::fs::write(&file, text).expect("written");
        train(&["data", "mixture", "diff", folder, file.to_str().expect("a plain path")])
    };
    diff(2, "verse/q1").expect("block 2 is not begun");
    let parts = ["moves the past", "at block 1 (step 4), before step 5", "block 2 or later"];
    refused(diff(1, "verse/q1"), &parts);
    refused(diff(0, "verse/q1"), &["the weights of stage 0 at block 0"]);
    refused(diff(2, "Verse/q1"), &["names cell `Verse/q1`", "did you mean `verse/q1`"]);
    let store = assemble::data(&tiny.config(&TWENTY)).expect("a readable corpus").rows;
    let store = store.store().path().to_str().expect("a plain path").to_owned();
    let mixture = tiny.path("mixture.toml");
    let head = "seq_len = 32\nbatch_rows = 4\nsteps = 20\nblock_rows = 16\n";
    let phase = "[[phases]]\nshare = 1.0\nweights = { \"prose/q1\" = 0.5, \"verse/q1\" = 0.5 }\n";
    let write = |text: String| std::fs::write(&mixture, text).expect("written");
    let file = mixture.to_str().expect("a plain path");
    write(format!("{head}{phase}"));
    refused(plan(&[file]), &["`cells` is absent"]);
    plan(&[file, "--store", &store]).expect("the cells of the store");
    // A path in the file starts from its folder.
    let name = Path::new(&store).file_name().expect("a digest").to_string_lossy();
    write(format!("store = \"cache/{name}\"\n{head}{phase}"));
    plan(&[file]).expect("the store beside the file");
    let recipe = Path::new(folder).join("recipe.toml");
    plan(&[recipe.to_str().expect("a plain path")]).expect("as the run");
}

#[test]
fn a_run_over_its_cap_of_epochs_is_not_started() {
    let tiny = Tiny::new();
    let error = tiny.run("run", &["data.max_epochs=0.25"]).map(drop);
    refused(error, &["more than 0.25 times", "prose/q1", "verse/q1", "`max_epochs`"]);
    assert!(!tiny.path("run").exists(), "a run's folder appeared");
    tiny.run("run", &["data.max_epochs=8.0", "schedule.steps=2"]).expect("far from it");
}

#[test]
fn a_run_that_simulates_epochs_reads_a_part_of_its_cells_also_after_a_resume() {
    let tiny = Tiny::new();
    // 2,560 of 10,240 tokens: a quarter of each cell.
    let simulated = "data.simulated_epoching={full_tokens=10240}";
    let config = tiny.config(&[&TWENTY[..], &[simulated]].concat());
    let all = assemble::data(&tiny.config(&TWENTY)).expect("a readable corpus").rows.pages();
    let seen = assemble::data(&config).expect("a readable corpus").rows.pages();
    for (all, seen) in all.iter().zip(seen) {
        assert!(seen.num_pages > 1 && seen.num_pages.abs_diff(all.num_pages / 4) <= 1, "{seen:?}");
    }
    run(&config, &tiny.options("whole")).expect("twenty steps");
    five_steps(&tiny, &[simulated]);
    let mut options = tiny.options("run");
    options.resume = true;
    let other =
        tiny.config(&[&TWENTY[..], &["data.simulated_epoching={full_tokens=5120}"]].concat());
    let error = run(&other, &options).map(drop).expect_err("other cells");
    assert!(chain(&error).contains("simulated_epoching"), "{}", chain(&error));
    run(&config, &options).expect("the rest");
    assert_eq!(steps_from(&tiny.path("whole"), 0), steps_from(&tiny.path("run"), 0));
}
