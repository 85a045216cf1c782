//! When a run saves: by steps, beside training, after a failure, at its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulmar::train::checkpoint::{Manifest, candidates};
use fulmar::train::history::{Event, History};
use fulmar::train::storage::Storage;
use fulmar::train::{RunOptions, exit, run};

use crate::storages::{Door, Watched, full};
use crate::tiny::{Tiny, assert_same_files, steps_from};

/// The steps of a run's checkpoints, all of them whole.
fn saved_steps(storage: &dyn Storage) -> Vec<u64> {
    let mut steps: Vec<u64> = candidates(storage)
        .expect("listed")
        .map(|found| {
            let (manifest, _) = found.manifest.unwrap_or_else(|why| panic!("{:?}", why));
            manifest.step
        })
        .collect();
    steps.reverse();
    steps
}

fn events(tiny: &Tiny, out: &str, what: &str) -> Vec<Event> {
    let mut events = History::read(&tiny.path(out)).expect("a history");
    events.retain(|event| event.what == what);
    events
}

fn options_with(tiny: &Tiny, out: &str, storage: &Arc<Watched>) -> RunOptions {
    let storage: Arc<dyn Storage> = storage.clone();
    RunOptions { storage: Some(storage), ..tiny.options(out) }
}

#[test]
fn a_run_saves_early_at_its_interval_and_at_its_end_and_nothing_twice() {
    let tiny = Tiny::new();
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let storage = Watched::asking(tiny.storage("run"), move |name| {
        let of_step = name.starts_with("step-") && name.ends_with("manifest.json");
        counted.fetch_add(u64::from(of_step), Ordering::Relaxed);
        Ok(())
    });
    let mut options = options_with(&tiny, "run", &storage);
    let config = tiny.config(&["checkpoint.every=4", "checkpoint.first=1"]);
    let summary = run(&config, &options).expect("a run");
    assert_eq!(saved_steps(&*storage), [1, 4, 8, 10]);
    assert_eq!(writes.load(Ordering::Relaxed), 4);
    let place = tiny.checkpoint("run", 10).display().to_string();
    assert_eq!(summary.checkpoint, Some(place.clone()));
    // A restart at the end saves nothing again.
    options.resume = true;
    let summary = run(&config, &options).expect("no step");
    assert_eq!((summary.steps_taken, summary.checkpoint), (0, Some(place)));
    assert_eq!(writes.load(Ordering::Relaxed), 4);
}

#[test]
fn a_save_beside_training_holds_the_state_of_its_step() {
    let tiny = Tiny::new();
    for (name, ranks) in [("one", &[][..]), ("four", &FOUR)] {
        let config = |more: &[&str]| tiny.config(&[ranks, &["checkpoint.every=3"], more].concat());
        let (waits, goes) = (format!("waits{name}"), format!("goes{name}"));
        run(&config(&[]), &tiny.options(&waits)).expect("a run");
        run(&config(&["checkpoint.background=true"]), &tiny.options(&goes)).expect("a run");
        assert_eq!(steps_from(&tiny.path(&waits), 1), steps_from(&tiny.path(&goes), 1));
        let steps = saved_steps(&*tiny.storage(&goes));
        assert!(steps.contains(&3) && steps.contains(&10), "{steps:?}");
        for step in steps {
            assert_same_files(&tiny.checkpoint(&waits, step), &tiny.checkpoint(&goes, step));
        }
    }
}

const FOUR: [&str; 3] =
    ["parallel.replicas=2", "parallel.shards=2", "parallel.dispatch={kind=\"ragged\"}"];

#[test]
fn steps_go_on_while_a_save_waits_and_what_is_due_meanwhile_is_left_out_and_said() {
    let tiny = Tiny::new();
    let door = Door::default();
    let (of_storage, from_here) = (door.clone(), door.clone());
    // The first save waits until the second is due; only then does the door open.
    let storage = Watched::asking(tiny.storage("run"), move |name| {
        if name.starts_with("step-00000002/") {
            of_storage.wait();
        }
        Ok(())
    });
    let options = options_with(&tiny, "run", &storage);
    let folder = tiny.path("run");
    let opener = std::thread::spawn(move || {
        loop {
            let events = History::read(&folder).unwrap_or_default();
            if events.iter().any(|event| event.what == "save_skipped") {
                from_here.open();
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let background = ["checkpoint.every=2", "checkpoint.background=true"];
    run(&tiny.config(&background), &options).expect("a run");
    opener.join().expect("no panic");
    let skipped = events(&tiny, "run", "save_skipped");
    assert_eq!(skipped[0].step, 4);
    assert!(skipped[0].text.contains("that of step 2 is under way"), "{}", skipped[0].text);
    let steps = saved_steps(&*storage);
    assert!(steps.starts_with(&[2]) && !steps.contains(&4) && steps.ends_with(&[10]), "{steps:?}");
}

#[test]
fn a_save_that_fails_is_said_tried_again_and_stops_nothing() {
    for background in ["false", "true"] {
        let tiny = Tiny::new();
        tiny.run("whole", &[]).expect("an undisturbed run");
        let failing = Arc::new(Mutex::new(vec!["step-00000004/shard-0-of-1.safetensors"]));
        let storage = Watched::asking(tiny.storage("run"), move |name| {
            let mut failing = failing.lock().expect("no panic");
            let before = failing.len();
            failing.retain(|fails| *fails != name);
            if failing.len() < before { Err(full()) } else { Ok(()) }
        });
        let options = options_with(&tiny, "run", &storage);
        let background = format!("checkpoint.background={background}");
        let config = ["checkpoint.every=4", "checkpoint.retry_after=2", &background];
        run(&tiny.config(&config), &options).expect("the run goes on");
        assert_same_files(&tiny.checkpoint("whole", 10), &tiny.checkpoint("run", 10));
        let [failed] = &events(&tiny, "run", "save_failed")[..] else { panic!("one failure") };
        let file = "step-00000004/shard-0-of-1.safetensors";
        assert!(failed.text.contains(file) && failed.text.contains("rank 0"), "{}", failed.text);
        let steps: Vec<u64> = events(&tiny, "run", "saved")
            .iter()
            .map(|event| event.detail["of"].as_u64().expect("a step"))
            .collect();
        // Two steps after the failure became known: at once, or a step or more later.
        assert!(steps[0] == 6 || (config[2].ends_with("true") && steps[0] > 6), "{steps:?}");
        assert_eq!(steps.last(), Some(&10));
    }
}

#[test]
fn a_last_save_that_fails_three_times_is_an_error_with_its_own_status() {
    let tiny = Tiny::new();
    let tries = Arc::new(AtomicU64::new(0));
    let counted = tries.clone();
    let storage = Watched::asking(tiny.storage("run"), move |name| match name {
        "step-00000010/manifest.json" => {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(full())
        }
        _ => Ok(()),
    });
    let options = options_with(&tiny, "run", &storage);
    let error = run(&tiny.config(&["checkpoint.every=5"]), &options).expect_err("not saved");
    assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
    let error = error.to_string();
    assert!(error.contains("step-00000010/manifest.json"), "{error}");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert_eq!(events(&tiny, "run", "save_failed").len(), 3);
    // The one before is as it was.
    Manifest::read(&*storage, 5).expect("still there");
}

#[test]
fn a_run_that_is_asked_to_stop_saves() {
    let tiny = Tiny::new();
    let options = tiny.options("run");
    options.stop.raise();
    let summary = run(&tiny.config(&["checkpoint.every=4"]), &options).expect("a clean end");
    assert_eq!(summary.state.step, 1);
    assert_eq!(saved_steps(&*tiny.storage("run")), [1]);
}
