//! Whole runs: nothing of steps, saves, evaluations, logs, pruning and longer rows piles up.

use std::path::Path;
use std::sync::{Arc, Mutex};

use fulmar::train::history::History;
use fulmar::train::storage::{LocalStorage, Storage};
use fulmar::train::{checkpoint, run};

use super::{Soak, resident_kib};
use crate::process;
use crate::storages::Watched;
use crate::tiny::{Tiny, config_in, options_in, steps_from};

/// The depth of `mini_d96` and its experts a token, at a third of its width and with 64 experts; on
/// two shards, with all that a run can do between two steps.
const SHAPE: [&str; 13] = [
    "model.num_layers=8",
    "model.num_experts=64",
    "model.num_experts_per_token=8",
    "parallel.shards=2",
    "parallel.dispatch={kind=\"ragged\"}",
    "parallel.compare_weights_every=50",
    "evaluation.every=20",
    "evaluation.max_rows=8",
    "checkpoint.every=10",
    "checkpoint.keep_last=2",
    "checkpoint.permanent_every=500",
    "log.norms_every=1",
    "context=[{from_step=5, seq_len=64}]",
];

/// Each attempt has threads of its own, and glibc keeps what threads have freed in arenas of theirs:
/// memory that is no longer held, and of which each further attempt shows some more. Here one arena
/// is shared, and gives back what is free.
const ONE_ARENA: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
];

/// How a run saves.
const BETWEEN_STEPS: &str = "checkpoint.background=false";
const BESIDE_STEPS: &str = "checkpoint.background=true";

// After so few steps the allocator has not settled. A gradient of a rank is 2,000 KiB: one kept by
// mistake in each step would be 400,000 for two ranks, a state kept with each save 100,000.
const SHORT: Soak = Soak { steps: 60, warm_up: 30, sample_every: 10, bound: 40_000.0 };

const LONG: Soak = Soak { steps: 2_000, warm_up: 400, sample_every: 10, bound: 1024.0 };

#[test]
fn sixty_steps_of_a_run_that_saves_between_steps_do_not_grow() {
    SHORT.of_a_run("sixty_steps_of_a_run_that_saves_between_steps_do_not_grow", &[BETWEEN_STEPS]);
}

#[test]
fn sixty_steps_of_a_run_that_saves_beside_training_do_not_grow() {
    SHORT.of_a_run("sixty_steps_of_a_run_that_saves_beside_training_do_not_grow", &[BESIDE_STEPS]);
}

#[test]
#[ignore = "minutes; see tests/README.md"]
fn two_thousand_steps_of_a_run_that_saves_between_steps_do_not_grow() {
    let name = "two_thousand_steps_of_a_run_that_saves_between_steps_do_not_grow";
    LONG.of_a_run(name, &[BETWEEN_STEPS]);
}

#[test]
#[ignore = "minutes; see tests/README.md"]
fn two_thousand_steps_of_a_run_that_saves_beside_training_do_not_grow() {
    let name = "two_thousand_steps_of_a_run_that_saves_beside_training_do_not_grow";
    LONG.of_a_run(name, &[BESIDE_STEPS]);
}

#[test]
#[ignore = "minutes; see tests/README.md"]
fn two_thousand_steps_of_a_run_in_eight_attempts_do_not_grow() {
    let name = "two_thousand_steps_of_a_run_in_eight_attempts_do_not_grow";
    LONG.of_a_run(name, &[BETWEEN_STEPS, BESIDE_STEPS].repeat(4));
}

type Samples = Arc<Mutex<Vec<(u64, u64)>>>;

impl Soak {
    /// In a process of its own, attempts of equal length that save as said. Memory is looked at when a
    /// checkpoint becomes whole.
    fn of_a_run(&self, test: &str, saving: &[&str]) {
        let Some(folder) = process::handed_over() else {
            let tiny = Tiny::new();
            let variables = if saving.len() > 1 { &ONE_ARENA[..] } else { &[] };
            let test = format!("soak::runs::{test}");
            let said = process::again_with(&test, &tiny.path(""), variables);
            let memory = said.lines().filter(|line| line.contains("KiB per 100 steps"));
            return memory.for_each(|line| println!("{test}: {line}"));
        };
        let steps = format!("schedule.steps={}", self.steps);
        let mut options = options_in(&folder, "run");
        let (samples, attempts) = (Samples::default(), saving.len() as u64);
        let storage = Arc::new(LocalStorage::new(checkpoint::folder(&options.out)));
        options.storage = Some(sampled(storage, &samples));
        for (attempt, saving) in (1..).zip(saving) {
            let config = config_in(&folder, &[&SHAPE[..], &[&steps, saving]].concat());
            options.stop_after = Some(attempt * self.steps / attempts);
            run(&config, &options).expect("a run");
            options.resume = true;
        }
        let lines = steps_from(&options.out, 0);
        assert_eq!(lines.len() as u64, self.steps);
        assert_eq!(lines[lines.len() - 1]["data/seq_len"], 64);
        self.assert_saved_and_pruned(&options.out);
        self.judge(&samples.lock().expect("no panic"));
    }

    /// Saves came as they were due, and only what retention keeps is there.
    fn assert_saved_and_pruned(&self, out: &Path) {
        let events = History::read(out).expect("a history");
        let count = |what: &str| events.iter().filter(|event| event.what == what).count() as u64;
        assert_eq!(count("save_failed") + count("prune_failed"), 0);
        assert!(count("saved") * 20 >= self.steps, "{} saves", count("saved"));
        assert!(count("pruned") > 0);
        let storage = LocalStorage::new(checkpoint::folder(out));
        let left = checkpoint::candidates(&storage).expect("listed").count() as u64;
        assert!(left <= 4 + self.steps / 500, "{left} checkpoints are left");
    }
}

/// A storage that looks at the memory when a checkpoint becomes whole.
fn sampled(inner: Arc<dyn Storage>, samples: &Samples) -> Arc<Watched> {
    let samples = samples.clone();
    Watched::asking(inner, move |name| {
        let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix("/manifest.json"));
        let step = step.and_then(|step| step.parse().ok());
        let sample = step.and_then(|step| Some((step, resident_kib()?)));
        samples.lock().expect("no panic").extend(sample);
        Ok(())
    })
}
