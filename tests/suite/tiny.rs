//! A run of seconds: a model of two narrow layers on a dozen documents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulmar::data::Batch;
use fulmar::ep::{Local, World};
use fulmar::train::assemble::{self, RunData};
use fulmar::train::checkpoint;
use fulmar::train::state::{self, TrainState};
use fulmar::train::step::{StepContext, StepReport};
use fulmar::train::stop_signal::StopSignal;
use fulmar::train::storage::{LocalStorage, Storage};
use fulmar::train::telemetry::Metrics;
use fulmar::train::telemetry::names::PEAK_RESIDENT;
use fulmar::train::{DeviceChoice, RunConfig, RunOptions, RunSummary, TrainError, recipe, run};
use tempfile::TempDir;

const RECIPE: &str = r#"
name = "tiny"
seed = 3
[model]
preset = "mini_d96"
hidden_dim = 32
num_layers = 2
num_heads = 2
head_dim = 16
num_experts = 8
num_experts_per_token = 2
intermediate_dim = 16
latent_dim = 16
shared_intermediate_dim = 16
num_shared_experts = 1
max_seq_len = 32
sliding_window = 16
gated_norm_rank = 4
[batch]
rows = 4
[schedule]
steps = 10
[data]
block_rows = 16
"#;

/// A folder with a corpus, a cache and runs, gone when the test ends.
pub(crate) struct Tiny {
    folder: TempDir,
}

impl Tiny {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tiny = Self { folder };
        write_corpus(&tiny.path(""));
        tiny
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The tiny recipe on the folder's corpus, with `path=value` overrides.
    pub(crate) fn config(&self, overrides: &[&str]) -> RunConfig {
        config_in(self.folder.path(), overrides)
    }

    /// A fresh start in the folder's subfolder `out`.
    pub(crate) fn options(&self, out: &str) -> RunOptions {
        options_in(self.folder.path(), out)
    }

    pub(crate) fn run(&self, out: &str, overrides: &[&str]) -> Result<RunSummary, TrainError> {
        run(&self.config(overrides), &self.options(out))
    }

    /// A file of the checkpoint after `step` updates of the run in `out`.
    pub(crate) fn checkpoint(&self, out: &str, step: u64) -> PathBuf {
        checkpoint::step_folder(&self.path(out), step)
    }

    /// Where the checkpoints of the run in `out` lie.
    pub(crate) fn storage(&self, out: &str) -> Arc<dyn Storage> {
        Arc::new(LocalStorage::new(checkpoint::folder(&self.path(out))))
    }
}

/// The corpus that [`config_in`] names.
pub(crate) fn write_corpus(folder: &Path) {
    std::fs::write(folder.join("corpus.jsonl"), corpus()).expect("written");
}

pub(crate) fn config_in(folder: &Path, overrides: &[&str]) -> RunConfig {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let mut config = recipe::parse(RECIPE, "tiny.toml", &overrides)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    config.data.cache = folder.join("cache");
    if config.data.sources.is_empty() {
        config.data.sources = vec![folder.join("corpus.jsonl")];
    }
    config.data.heldout = vec![folder.join("corpus.jsonl")];
    config
}

pub(crate) fn options_in(folder: &Path, out: &str) -> RunOptions {
    RunOptions {
        out: folder.join(out),
        device: DeviceChoice::Cpu,
        resume: false,
        stop_after: None,
        samples: false,
        stop: StopSignal::default(),
        storage: None,
    }
}

/// Twelve documents of two domains; the words follow from the document's number.
fn corpus() -> String {
    const WORDS: [&str; 12] =
        ["the", "sea", "was", "grey", "and", "a", "gull", "rose", "over", "rain", "on", "stone"];
    let document = |n: usize| {
        let words: Vec<&str> = (0..90 + 7 * n).map(|i| WORDS[(i * i + n * i + n) % 12]).collect();
        let (domain, text) = (["prose", "verse"][n % 2], words.join(" "));
        format!("{{\"id\":\"d{n}\",\"domain\":\"{domain}\",\"quality\":1,\"text\":\"{text}\"}}\n")
    };
    (0..12).map(document).collect()
}

/// A state with all that its steps need, outside of a run.
pub(crate) struct Bench {
    pub(crate) config: RunConfig,
    pub(crate) data: RunData,
    pub(crate) state: TrainState,
    pub(crate) device: burn::tensor::Device,
}

impl Bench {
    pub(crate) fn new(config: RunConfig) -> Self {
        let device = fulmar::train::device::open(DeviceChoice::Cpu).expect("a CPU").device;
        let data = assemble::data(&config).expect("a readable corpus");
        let state = TrainState::new(&config, &World::solo(), &device).expect("a valid model");
        Self { config, data, state, device }
    }

    /// The batch that the next step takes.
    pub(crate) fn batch(&self) -> Batch {
        let (batches, rows) = (self.state.batches, self.config.batch.rows);
        self.data.rows.batch(batches * rows..(batches + 1) * rows)
    }

    pub(crate) fn step(&mut self) -> StepReport {
        let batch = self.batch();
        let (world, dispatcher) = (World::solo(), Local::new(self.config.model.num_experts));
        let balancing = state::balancing(&self.config);
        let context = StepContext::new(&self.config, &world, &dispatcher, &balancing, &self.device);
        let rates = self.state.optimizer.rates(&self.config.schedule, self.state.step);
        self.state.step(&batch, rates, &context).expect("a step")
    }
}

/// The metric log of a run, without what depends on the clock or on all that the process holds.
pub(crate) fn logged(run: &Path) -> Vec<Metrics> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("a metric log");
    let line = |line: &str| {
        let metrics: Metrics = serde_json::from_str(line).expect("a flat object");
        let varies = |name: &str| name.starts_with("throughput/") || name == PEAK_RESIDENT;
        metrics.into_iter().filter(|(name, _)| !varies(name)).collect()
    };
    text.lines().map(line).collect()
}

/// The logged steps from `first` on, without the number of the attempt and without evaluations.
pub(crate) fn steps_from(run: &Path, first: u64) -> Vec<Metrics> {
    let mut lines = logged(run);
    lines.retain(|line| line.contains_key("train/loss") && line["step"].as_u64() >= Some(first));
    lines.iter_mut().for_each(|line| drop(line.remove("attempt")));
    lines
}

/// Fails unless two checkpoints have the same files of tensors, byte for byte: weights, experts,
/// moments and balance.
pub(crate) fn assert_same_files(left: &Path, right: &Path) {
    let names = |folder: &Path| -> BTreeSet<String> {
        let files =
            std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let names =
            files.map(|file| file.expect("listed").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".safetensors")).collect()
    };
    assert_eq!(names(left), names(right));
    let has = |start: &str| names(left).iter().any(|name| name.starts_with(start));
    assert!(has("shard-0-of-") && has("balance."), "{:?}", names(left));
    for name in names(left) {
        let read = |folder: &Path| {
            let path = folder.join(&name);
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let (left, right) = (read(left), read(right));
        let differs = left.iter().zip(&right).position(|(a, b)| a != b);
        assert!(left.len() == right.len() && differs.is_none(), "{name} differs at {differs:?}");
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!("; because: {error}");
        cause = error.source();
    }
    text
}
