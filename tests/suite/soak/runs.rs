//! Whole runs, attempt after attempt in one process: nothing of saves, evaluations, logs and resumes
//! piles up.

use std::path::Path;
use std::sync::{Arc, Mutex};

use fulmar::train::history::History;
use fulmar::train::storage::LocalStorage;
use fulmar::train::{checkpoint, run};

use super::{Soak, resident_kib};
use crate::process;
use crate::storages::Watched;
use crate::tiny::{Tiny, config_in, options_in, steps_from};

/// Steps of an attempt; the next one resumes, and saves the other way.
const ATTEMPT: u64 = 250;

/// The depth of `mini_d96` and its experts a token, at a third of its width and with 64 experts; on
/// two shards, with all that a run can do between two steps.
const SHAPE: [&str; 14] = [
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
    "guard.slow_secs=60",
];

#[test]
fn ninety_steps_of_whole_runs_do_not_grow() {
    // Three attempts before the allocator has settled. What a step is made of, kept by mistake, is
    // 20,000 KiB a step; a snapshot kept with each save, a tenth of that.
    let soak = Soak { steps: 90, warm_up: 30, sample_every: 10, bound: 60_000.0 };
    soak.of_runs("soak::runs::ninety_steps_of_whole_runs_do_not_grow", 30);
}

#[test]
#[ignore = "minutes; see tests/README.md"]
fn two_thousand_steps_of_whole_runs_do_not_grow() {
    let soak = Soak { steps: 2_000, warm_up: 500, sample_every: 10, bound: 1024.0 };
    soak.of_runs("soak::runs::two_thousand_steps_of_whole_runs_do_not_grow", ATTEMPT);
}

impl Soak {
    /// In a process of its own, attempts of so many steps, saving between steps and beside them in
    /// turn. Memory is looked at when a checkpoint becomes whole.
    fn of_runs(&self, test: &str, attempt: u64) {
        let Some(folder) = process::handed_over() else {
            let tiny = Tiny::new();
            return print!("{}", process::again(test, &tiny.path("")));
        };
        let samples = Arc::new(Mutex::new(Vec::new()));
        for (index, end) in (attempt..=self.steps).step_by(attempt as usize).enumerate() {
            self.attempt(&folder, index, end, &samples);
        }
        let out = folder.join("run");
        assert_eq!(steps_from(&out, 0).len() as u64, self.steps, "each step once");
        self.assert_saved_and_pruned(&out);
        let mut samples = samples.lock().expect("no panic").clone();
        samples.dedup_by_key(|(step, _)| *step);
        self.judge(&samples);
    }

    fn attempt(
        &self,
        folder: &Path,
        index: usize,
        end: u64,
        samples: &Arc<Mutex<Vec<(u64, u64)>>>,
    ) {
        let steps = format!("schedule.steps={}", self.steps);
        let background = format!("checkpoint.background={}", index % 2 == 1);
        let config = config_in(folder, &[&SHAPE[..], &[&steps, &background]].concat());
        let mut options = options_in(folder, "run");
        (options.resume, options.stop_after) = (true, Some(end));
        let inner = Arc::new(LocalStorage::new(checkpoint::folder(&options.out)));
        let seen = samples.clone();
        options.storage = Some(Watched::asking(inner, move |name| {
            let step =
                name.strip_prefix("step-").and_then(|name| name.strip_suffix("/manifest.json"));
            let step = step.and_then(|step| step.parse().ok());
            let sample = step.and_then(|step| Some((step, resident_kib()?)));
            seen.lock().expect("no panic").extend(sample);
            Ok(())
        }));
        run(&config, &options).expect("an attempt");
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
