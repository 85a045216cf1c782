//! Changes of a run in its course, through the binary's own commands, and what is told of them.

use std::path::Path;
use std::sync::mpsc::channel;

use clap::Parser as _;
use fulmar::train::cli::Cli;
use fulmar::train::history::History;
use fulmar::train::telemetry::Metrics;
use fulmar::train::{TrainError, explain, run};

use crate::storages::{Door, Watched};
use crate::tiny::{Tiny, assert_same_files, steps_from};

/// What `train` does with these arguments.
fn train(args: &[&str]) -> Result<(), TrainError> {
    let cli = Cli::try_parse_from([&["train"], args].concat()).unwrap_or_else(|e| panic!("{e}"));
    cli.command.execute()
}

/// A run of five of twenty steps, with a checkpoint at each.
fn five_steps(tiny: &Tiny, out: &str, overrides: &[&str]) {
    let mut options = tiny.options(out);
    options.stop_after = Some(5);
    run(&tiny.config(overrides), &options).expect("five steps");
}

fn go_on(tiny: &Tiny, out: &str, overrides: &[&str]) {
    let mut options = tiny.options(out);
    options.resume = true;
    run(&tiny.config(overrides), &options).expect("the rest");
}

const TWENTY: [&str; 2] = ["schedule.steps=20", "checkpoint.every=1"];

fn rates(run: &Path) -> Vec<f64> {
    let rate = |line: &Metrics| line["optim/learning_rate"].as_f64().expect("a number");
    steps_from(run, 0).iter().map(rate).collect()
}

#[test]
fn a_horizon_is_shortened_in_mid_run_without_a_jump_and_ends_at_5_percent() {
    let tiny = Tiny::new();
    tiny.run("whole", &TWENTY).expect("twenty steps");
    five_steps(&tiny, "run", &TWENTY);
    let (place, whole) = (tiny.path("run"), tiny.path("whole"));
    let folder = place.to_str().expect("a plain path");
    let change = ["replan", folder, "--steps", "12", "--reason", "the grant ends"];
    train(&[&change[..], &["--dry-run"]].concat()).expect("shown");
    assert!(History::read(&place).expect("read").iter().all(|e| e.what != "operation"));
    train(&change).expect("a quarter is done");
    go_on(&tiny, "run", &TWENTY);

    let (before, after) = (rates(&whole), rates(&place));
    assert_eq!((after.len(), &before[..6]), (12, &after[..6]), "the sixth update is at the join");
    let fall: Vec<f64> = after[5..].windows(2).map(|pair| pair[0] - pair[1]).collect();
    for pair in fall.windows(2) {
        assert!((pair[0] - pair[1]).abs() < 1e-12, "not a line: {fall:?}");
    }
    // One more step would be at 5%.
    let end = after[11] - fall[0];
    assert!((end - 0.05 * before[0]).abs() < 1e-12, "{end} is not 5% of {}", before[0]);
    assert_eq!(steps_from(&whole, 0)[..6], steps_from(&place, 0)[..6]);

    let told = explain::explain(&place, 9).expect("made");
    assert_eq!((told.horizon, told.made, told.operations.len()), (12, true, 1));
    assert_eq!(told.operations[0].text, "the grant ends");
    assert!((told.muonh_rate - after[8]).abs() < 1e-15);
    assert_eq!(explain::explain(&place, 5).expect("made").horizon, 20);
    train(&["explain", folder, "9"]).expect("told");
    let late = train(&["replan", folder, "--steps", "11", "--reason", "more"]);
    assert!(late.expect_err("too late").to_string().contains("a quarter of the 12 updates"));
}

#[test]
fn exchange_decay_and_mixture_change_together_and_are_told_with_their_reason() {
    let tiny = Tiny::new();
    let ranks = [&TWENTY[..], &["parallel.shards=2", "parallel.dispatch={kind=\"ring\"}"]].concat();
    five_steps(&tiny, "run", &ranks);
    let place = tiny.path("run");
    let folder = place.to_str().expect("a plain path");
    let mixture = tiny.path("mixture.toml");
    let weights =
        "[[stages]]\nfrom_block = 2\nweights = { \"prose-q1\" = 0.25, \"verse-q1\" = 0.75 }\n";
    let cells = History::read(&place).map(|_| cells(&tiny, &ranks)).expect("read");
    let weights = weights.replace("prose-q1", &cells[0]).replace("verse-q1", &cells[1]);
    std::fs::write(&mixture, weights).expect("written");
    let mixture = mixture.to_str().expect("a plain path");
    let change = ["--exchange", "{kind=\"ragged\"}", "--decay", "0.02", "--mixture", mixture];
    train(&[&["replan", folder, "--reason", "as the live run did"], &change[..]].concat())
        .expect("recorded");
    go_on(&tiny, "run", &ranks);
    let steps = steps_from(&place, 0);
    assert_eq!(steps.len(), 20);
    for line in &steps {
        let step = line["step"].as_u64().expect("a step");
        assert_eq!(line["moe/exchange"], if step <= 5 { "ring" } else { "ragged" }, "step {step}");
        // Blocks of 16 rows, batches of 4: block 2 begins with batch 8.
        assert_eq!(line["mixture/stage"], u64::from(step > 8), "step {step}");
    }
    let told = explain::explain(&place, 12).expect("made");
    let kinds: Vec<&str> = told
        .operations
        .iter()
        .filter_map(|event| event.detail.get("operation")?["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["mixture", "exchange", "decay"]);
    assert!((told.gate_router_decay - 0.02 * (1.0 - 11.0 / 20.0)).abs() < 1e-12);
    assert_eq!(explain::explain(&place, 5).expect("made").gate_router_decay, 0.0);
    assert_eq!(told.mixture_stage, Some((1, 2)));
    let said = told.to_string();
    assert!(said.contains("as the live run did") && said.contains("Ragged"), "{said}");
    let ahead = explain::explain(&place, 21).expect_err("beyond the horizon").to_string();
    assert!(ahead.contains("`STEP` is 21, needed 1 to 20"), "{ahead}");
}

fn cells(tiny: &Tiny, overrides: &[&str]) -> Vec<String> {
    let data = fulmar::train::assemble::data(&tiny.config(overrides)).expect("a readable corpus");
    data.rows.store().cell_names()
}

#[test]
fn a_cooldown_branches_off_and_leaves_the_run_as_it_was() {
    let tiny = Tiny::new();
    tiny.run("whole", &TWENTY).expect("twenty steps");
    let keeping = [&TWENTY[..], &["checkpoint.keep_last=2"]].concat();
    five_steps(&tiny, "run", &keeping);
    let (main, cooldown) = (tiny.path("run"), tiny.path("cooldown"));
    let [main_folder, branch_folder] =
        [&main, &cooldown].map(|path| path.to_str().expect("a plain path"));
    let branch = ["replan", main_folder, "--branch", branch_folder, "--from", "4", "--steps", "8"];
    train(&[&branch[..], &["--reason", "a look at the end"]].concat()).expect("made");
    let again = train(&[&branch[..], &["--reason", "again"]].concat()).expect_err("it is there");
    assert!(again.to_string().contains("a folder that is empty or not there"), "{again}");

    // The main run goes on as if nothing had happened, and keeps the parent.
    go_on(&tiny, "run", &keeping);
    assert_eq!(steps_from(&main, 0), steps_from(&tiny.path("whole"), 0));
    assert_same_files(&tiny.checkpoint("run", 20), &tiny.checkpoint("whole", 20));
    let left = |step| tiny.checkpoint("run", step).join("manifest.json").exists();
    assert_eq!([3, 4, 5, 18, 19, 20].map(left), [false, true, false, false, true, true]);
    let unpin = train(&["checkpoint", "unpin", main_folder, "4", "--reason", "room"]);
    assert!(unpin.expect_err("a parent").to_string().contains("parent of run"));

    train(&["run", branch_folder, "--resume", "--device", "cpu"]).expect("four steps");
    let (branch, main) = (steps_from(&cooldown, 0), steps_from(&main, 0));
    assert_eq!(branch.len(), 4);
    assert_eq!(branch[0], main[4], "the update at the join is the same");
    let rates = rates(&cooldown);
    assert!(
        (rates[3]
            - (rates[2] - rates[3])
            - 0.05 * main[0]["optim/learning_rate"].as_f64().expect("a rate"))
        .abs()
            < 1e-12
    );
    // And on from its own checkpoints.
    train(&["run", branch_folder, "--resume", "--device", "cpu"]).expect("nothing to do");
    let starts = History::read(&cooldown).expect("read").into_iter();
    let starts: Vec<String> =
        starts.filter(|event| event.what == "started").map(|event| event.text).collect();
    assert!(
        starts[0].contains("branched off from") && starts[1] == "resumed from step 8",
        "{starts:?}"
    );
}

#[test]
fn a_run_proves_itself_and_a_record_that_was_altered_is_found() {
    let tiny = Tiny::new();
    let overrides = [
        "schedule.steps=8",
        "checkpoint.every=3",
        "parallel.shards=2",
        "parallel.dispatch={kind=\"ragged\"}",
    ];
    tiny.run("run", &overrides).expect("eight steps");
    let place = tiny.path("run");
    let folder = place.to_str().expect("a plain path");
    train(&["prove", folder, "--device", "cpu"]).expect("steps 7 and 8");
    train(&["prove", folder, "--device", "cpu", "--steps", "4"]).expect("steps 4 to 8");
    assert!(place.join("proofs/6-8/proof.json").exists() && place.join("proofs/3-8").exists());

    let log = place.join("metrics.jsonl");
    let text = std::fs::read_to_string(&log).expect("read");
    let altered: Vec<String> = text
        .lines()
        .map(|line| {
            let mut metrics: Metrics = serde_json::from_str(line).expect("an object");
            if metrics["step"] == 7 && metrics.contains_key("train/loss") {
                let loss = metrics["train/loss"].as_f64().expect("a number");
                metrics.insert("train/loss".to_owned(), f64::from_bits(loss.to_bits() + 1).into());
            }
            serde_json::Value::Object(metrics).to_string()
        })
        .collect();
    std::fs::write(&log, altered.join("\n") + "\n").expect("written");
    let error = train(&["prove", folder, "--device", "cpu"]).expect_err("one bit");
    let said = error.to_string();
    assert!(
        said.contains("`train/loss` of step 7 was") && said.contains("1 differences"),
        "{said}"
    );
    assert_eq!(fulmar::train::exit::status_of(&error), 6);
}

#[test]
fn a_change_from_before_the_newest_checkpoint_is_refused_unless_it_is_a_branch() {
    let tiny = Tiny::new();
    five_steps(&tiny, "run", &TWENTY);
    let place = tiny.path("run");
    let folder = place.to_str().expect("a plain path");
    let change = ["replan", folder, "--steps", "12", "--from", "4", "--reason", "earlier"];
    let said = train(&change).expect_err("step 5 was made by the old plan").to_string();
    assert!(
        said.contains("`--from` is 4, needed at least 5") && said.contains("--branch"),
        "{said}"
    );
    go_on(&tiny, "run", &TWENTY);
    assert_eq!(steps_from(&place, 0).len(), 20);
}

#[test]
fn a_run_that_is_under_way_is_neither_changed_nor_trained_twice() {
    let tiny = Tiny::new();
    five_steps(&tiny, "run", &TWENTY);
    let (place, door) = (tiny.path("run"), Door::default());
    let (inner, waits, (reached, at_the_door)) = (tiny.storage("run"), door.clone(), channel());
    let mut options = tiny.options("run");
    options.resume = true;
    options.storage = Some(Watched::asking(inner, move |name| {
        if name == "step-00000007/manifest.json" {
            reached.send(()).expect("awaited");
            waits.wait();
        }
        Ok(())
    }));
    let config = tiny.config(&TWENTY);
    std::thread::scope(|scope| {
        let training = scope.spawn(|| run(&config, &options).map(|summary| summary.state.step));
        at_the_door.recv().expect("step 7");
        let folder = place.to_str().expect("a plain path");
        let change = ["replan", folder, "--decay", "0.1", "--reason", "at the wrong moment"];
        let changed = train(&change).map_err(|error| error.to_string());
        let mut second = tiny.options("run");
        second.resume = true;
        let trained = run(&config, &second).map(drop).map_err(|error| error.to_string());
        door.open();
        for refused in [changed, trained] {
            let said = refused.expect_err("the run is under way");
            assert!(said.contains("no other process trains or changes"), "{said}");
        }
        assert_eq!(training.join().expect("no panic").expect("the rest"), 20);
    });
    assert!(History::read(&place).expect("read").iter().all(|event| event.what != "operation"));
}

#[test]
fn an_update_is_explained_by_the_exchange_of_its_attempt() {
    let tiny = Tiny::new();
    let by = |exchange| [&TWENTY[..], &["parallel.shards=2", exchange]].concat();
    five_steps(&tiny, "run", &by("parallel.dispatch={kind=\"ring\"}"));
    go_on(&tiny, "run", &by("parallel.dispatch={kind=\"ragged\"}"));
    for (step, exchange) in [(5, "Ring"), (6, "Ragged")] {
        let told = explain::explain(&tiny.path("run"), step).expect("made");
        assert!(told.exchange.contains(exchange), "step {step}: {}", told.exchange);
    }
}

#[test]
fn alarms_may_change_between_attempts() {
    let tiny = Tiny::new();
    five_steps(&tiny, "run", &TWENTY);
    go_on(&tiny, "run", &[&TWENTY[..], &["alarms.grad_norm=0.5", "alarms.samples=3"]].concat());
}

#[test]
fn what_a_plan_does_not_allow_is_refused_and_nothing_recorded() {
    let tiny = Tiny::new();
    five_steps(&tiny, "run", &TWENTY);
    let place = tiny.path("run");
    let folder = place.to_str().expect("a plain path");
    for (change, needed) in [
        (&["--steps", "20"][..], "another horizon than 20"),
        (&["--steps", "5"], "above 5"),
        (&["--exchange", "{kind=\"local\"}"], "another exchange than the one in force"),
        (&["--exchange", "{kind=\"ragd\"}"], "unknown variant `ragd`"),
        (&["--decay", "1.5"], "`--decay` is 1.5"),
        (&["--context", "64@9"], "a divisor of 32, the longest row"),
        (&["--mixture", "missing.toml"], "could not read mixture missing.toml"),
        (&["--steps", "12", "--from", "9"], "step-00000009"),
    ] {
        let args = [&["replan", folder, "--reason", "a try"], change].concat();
        let said = train(&args).expect_err(needed).chain();
        assert!(said.contains(needed), "{change:?}: {said}");
    }
    assert!(History::read(&place).expect("read").iter().all(|event| event.what != "operation"));
}
