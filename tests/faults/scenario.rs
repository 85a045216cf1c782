//! The runs that faults happen to, and each of them undisturbed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fulmar::train::recipe;

use crate::child;
use crate::tiny::{config_in, write_corpus};

/// A run of two ranks that saves every two steps.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    set: &'static [&'static str],
    /// Whether steps go on while it saves.
    pub(crate) background: bool,
    undisturbed: OnceLock<Undisturbed>,
}

/// Steps of every run, and between its saves.
pub(crate) const STEPS: u64 = 14;
pub(crate) const EVERY: u64 = 2;

const ALWAYS: [&str; 5] = [
    "schedule.steps=14",
    "checkpoint.every=2",
    "evaluation={every=5, batch_rows=4, max_rows=4, bigram=false}",
    "parallel.compare_weights_every=4",
    "parallel.deadline_secs=60",
];

/// Streams, keeps everything.
pub(crate) static STREAMING: Scenario = Scenario::new(
    "streaming",
    false,
    &["parallel.shards=2", "parallel.dispatch={kind=\"ragged\"}"],
);

/// Saves beside training and keeps two checkpoints.
pub(crate) static BESIDE: Scenario = Scenario::new(
    "beside",
    true,
    &[
        "parallel.shards=2",
        "parallel.dispatch={kind=\"ring\"}",
        "checkpoint.background=true",
        "checkpoint.keep_last=2",
    ],
);

/// Another exchange from step 5 on, rows twice as long from batch 8 on, and one checkpoint kept.
pub(crate) static CHANGING: Scenario = Scenario::new(
    "changing",
    false,
    &[
        "parallel.shards=2",
        "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2}",
        "parallel.switches=[{step=5, dispatch={kind=\"ragged\"}}]",
        "context=[{from_step=5, seq_len=64, max_drop_fraction=1.0}]",
        "checkpoint.keep_last=1",
        "checkpoint.permanent_every=6",
    ],
);

/// Two replicas that save beside training, through the same changes.
pub(crate) static REPLICAS: Scenario = Scenario::new(
    "replicas",
    true,
    &[
        "parallel.replicas=2",
        "context=[{from_step=5, seq_len=64, max_drop_fraction=1.0}]",
        "checkpoint.background=true",
        "checkpoint.first=1",
        "checkpoint.keep_last=1",
    ],
);

/// One rank.
pub(crate) static ONE: Scenario = Scenario::new("alone", false, &[]);

pub(crate) static ALL: [&Scenario; 4] = [&STREAMING, &BESIDE, &CHANGING, &REPLICAS];

/// A run that nothing happened to.
#[derive(Debug)]
pub(crate) struct Undisturbed {
    /// Over its own corpus and cache.
    pub(crate) recipe: PathBuf,
    /// The run's own folder.
    pub(crate) run: PathBuf,
    /// What it took, its process included.
    pub(crate) took: Duration,
}

static WORK: OnceLock<PathBuf> = OnceLock::new();

/// All folders are made below this one.
pub(crate) fn work_in(folder: &Path) {
    WORK.set(folder.to_owned()).expect("set once");
}

/// A folder for a trial.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = WORK.get().expect("set by main").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

impl Scenario {
    const fn new(name: &'static str, background: bool, set: &'static [&'static str]) -> Self {
        Self { name, set, background, undisturbed: OnceLock::new() }
    }

    /// The recipe over corpus and cache in `folder`, into a file there.
    pub(crate) fn write_recipe(&self, folder: &Path) -> PathBuf {
        write_corpus(folder);
        let config = config_in(folder, &[&ALWAYS[..], self.set].concat());
        let path = folder.join("faults.toml");
        std::fs::write(&path, recipe::to_toml(&config)).expect("written");
        path
    }

    /// The run to its end; made when it is first asked for.
    pub(crate) fn undisturbed(&self) -> &Undisturbed {
        self.undisturbed.get_or_init(|| {
            let folder = folder(&format!("undisturbed-{}", self.name));
            let recipe = self.write_recipe(&folder);
            // Makes the store of tokens, so that the time is that of a run alone.
            child::run(&recipe, &folder.join("first"), &["--steps=1"]).done();
            let (run, began) = (folder.join("run"), Instant::now());
            child::run(&recipe, &run, &[]).done();
            Undisturbed { took: began.elapsed(), recipe, run }
        })
    }
}
