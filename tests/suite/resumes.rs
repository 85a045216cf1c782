//! What public trainers got wrong when they were killed and started again, case by case.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::abort;
use std::sync::Arc;

use fulmar::train::checkpoint;
use fulmar::train::history::{Event, History};
use fulmar::train::run;
use fulmar::train::storage::LocalStorage;
use fulmar::train::telemetry::stitch::updates_of_run;

use crate::process;
use crate::storages::Watched;
use crate::tiny::{Tiny, assert_same_files, config_in, options_in, steps_from};

#[test]
fn seven_steps_and_an_eighth_in_a_fresh_process_are_eight() {
    let eight = ["schedule.steps=8"];
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "run");
        options.resume = true;
        let summary = run(&config_in(&folder, &eight), &options).expect("the eighth step");
        return assert_eq!(summary.steps_taken, 1);
    }
    let tiny = Tiny::new();
    assert_eq!(tiny.config(&[]).model.num_layers, 2);
    tiny.run("whole", &eight).expect("eight steps");
    let mut options = tiny.options("run");
    options.stop_after = Some(7);
    run(&tiny.config(&eight), &options).expect("seven steps");
    let name = "resumes::seven_steps_and_an_eighth_in_a_fresh_process_are_eight";
    process::again(name, &tiny.path(""));
    assert_eq!(steps_from(&tiny.path("whole"), 8), steps_from(&tiny.path("run"), 8));
    // Weights, moments and pending balance.
    assert_same_files(&tiny.checkpoint("whole", 8), &tiny.checkpoint("run", 8));
}

/// Twenty steps on so many replicas, with a save after each.
fn twenty(replicas: usize) -> [String; 3] {
    [
        format!("parallel.replicas={replicas}"),
        "schedule.steps=20".into(),
        "checkpoint.every=1".into(),
    ]
}

/// The digest of the rows of each update, of the attempt that counts.
fn digests(run: &Path) -> BTreeMap<u64, String> {
    let updates = updates_of_run(run, 1..=20).expect("a log").into_iter();
    updates.map(|(step, line)| (step, line["data/digest"].to_string())).collect()
}

/// Resumes the run in `out` and dies in the save of step `kill`, as by SIGKILL.
fn resume_until_killed(folder: &Path) {
    let text = std::fs::read_to_string(folder.join("kill")).expect("replicas and a step");
    let (replicas, kill) = text.split_once(' ').expect("two numbers");
    let replicas: usize = replicas.parse().expect("a number");
    let overrides = twenty(replicas);
    let config = config_in(folder, &overrides.each_ref().map(String::as_str));
    let mut options = options_in(folder, &format!("killed-{replicas}"));
    options.resume = true;
    let inner = Arc::new(LocalStorage::new(checkpoint::folder(&options.out)));
    let last = format!("{}/", checkpoint::step_name(kill.parse().expect("a number")));
    options.storage =
        Some(Watched::asking(
            inner,
            move |name| {
                if name.starts_with(&last) { abort() } else { Ok(()) }
            },
        ));
    run(&config, &options).expect("the rest");
}

#[test]
fn kills_at_steps_5_6_and_13_of_20_leave_the_same_20_digests_at_1_and_4_replicas() {
    const NAME: &str =
        "resumes::kills_at_steps_5_6_and_13_of_20_leave_the_same_20_digests_at_1_and_4_replicas";
    if let Some(folder) = process::handed_over() {
        return resume_until_killed(&folder);
    }
    let tiny = Tiny::new();
    for replicas in [1, 4] {
        let overrides = twenty(replicas);
        let whole = format!("whole-{replicas}");
        tiny.run(&whole, &overrides.each_ref().map(String::as_str)).expect("twenty steps");
        for kill in [5, 6, 13] {
            std::fs::write(tiny.path("kill"), format!("{replicas} {kill}")).expect("written");
            let output = process::start(NAME, &tiny.path(""));
            assert!(!output.status.success(), "it was to be killed at step {kill}");
        }
        std::fs::write(tiny.path("kill"), format!("{replicas} 21")).expect("written");
        process::again(NAME, &tiny.path(""));
        let killed = format!("killed-{replicas}");
        let made = digests(&tiny.path(&killed));
        assert_eq!(made.len(), 20);
        assert_eq!(made, digests(&tiny.path("whole-1")), "{replicas} replicas");
        assert_same_files(&tiny.checkpoint(&whole, 20), &tiny.checkpoint(&killed, 20));
    }
}

#[test]
fn of_40_whole_50_short_by_a_byte_and_60_without_manifest_two_ranks_take_40() {
    let sixty = [
        "schedule.steps=60",
        "checkpoint.every=10",
        "parallel.shards=2",
        "parallel.dispatch={kind=\"ragged\"}",
    ];
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "run");
        options.resume = true;
        options.stop_after = Some(41);
        let summary = run(&config_in(&folder, &sixty), &options).expect("step 41");
        return assert_eq!(summary.steps_taken, 1);
    }
    let tiny = Tiny::new();
    tiny.run("run", &sixty).expect("sixty steps");
    let shard = tiny.checkpoint("run", 50).join("shard-1-of-2.safetensors");
    let bytes = std::fs::read(&shard).expect("read");
    std::fs::write(&shard, &bytes[..bytes.len() - 1]).expect("written");
    std::fs::remove_file(tiny.checkpoint("run", 60).join("manifest.json")).expect("removed");
    let name = "resumes::of_40_whole_50_short_by_a_byte_and_60_without_manifest_two_ranks_take_40";
    let said = process::again(name, &tiny.path(""));
    let (found, needed) = (bytes.len() - 1, bytes.len());
    for part in [
        "step-00000060/manifest.json: no manifest".to_owned(),
        format!("step-00000050/shard-1-of-2.safetensors: {found} bytes, needed {needed}"),
        "step-00000040 (step 40)".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}\n{said}");
    }
}

#[test]
fn a_run_of_imported_weights_that_lost_them_never_starts_from_others() {
    let tiny = Tiny::new();
    let imported = Event::now(0, 0, "imported", "weights of somewhere");
    std::fs::create_dir_all(tiny.path("run")).expect("made");
    let history = History::open(&tiny.path("run"));
    history.and_then(|mut history| history.append(&imported)).expect("written");
    let mut options = tiny.options("run");
    options.resume = true;
    let error = run(&tiny.config(&[]), &options).expect_err("the weights are gone").to_string();
    assert!(error.contains("no whole checkpoint in"), "{error}");
}
