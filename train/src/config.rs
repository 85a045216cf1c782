//! A run as one typed value.

use std::path::PathBuf;
use std::sync::Arc;

use fulmar_data::mixture::SimulatedEpoching;
use fulmar_data::{DEFAULT_BLOCK_ROWS, DocumentMarks, ReadAhead, Stage};
use fulmar_eval::SuiteConfig;
use fulmar_eval::forecast::NUM_POINTS;
use fulmar_eval::sampling::Sampling;
use fulmar_model::config::RouterDot;
use fulmar_model::{Compute, ModelConfig, Recompute};
use serde::{Deserialize, Serialize};

use crate::alarms::AlarmsConfig;
use crate::context::ContextStage;
use crate::error::TrainError;
use crate::forecast::point_step;
use crate::guard::GuardConfig;
use crate::optim::{MomentumDtype, NewtonSchulzKind, OptimizerConfig, Peaks, Schedule};
use crate::parallel::ParallelConfig;
use crate::storage::{Storage, open_storage};
use crate::telemetry::LogConfig;

/// Everything that decides what a run computes, and where it leaves its traces.
///
/// Saved resolved as `recipe.toml` in the run's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the run, the default folder under `runs/`.
    pub name: String,
    /// Seed of initial weights and of the order of rows.
    #[serde(default)]
    pub seed: u64,
    /// The model. `preset = "..."` in a recipe fills in what is not given.
    pub model: ModelConfig,
    /// Rows of a step.
    pub batch: BatchConfig,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// The update rules.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// What is read.
    #[serde(default)]
    pub data: DataConfig,
    /// How ranks share the work.
    #[serde(default)]
    pub parallel: ParallelConfig,
    /// What memory is given for.
    #[serde(default)]
    pub memory: MemoryConfig,
    /// When and how the held-out text is evaluated.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// When state is saved.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// What is reported.
    #[serde(default)]
    pub log: LogConfig,
    /// What happens when a step is not finite, slow, or does not end.
    #[serde(default)]
    pub guard: GuardConfig,
    /// Limits beyond which a run says that it is not well.
    #[serde(default)]
    pub alarms: AlarmsConfig,
    /// Longer rows in the course of the run, in the order they come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextStage>,
    /// The run that this one branched off from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Folder of the experiment that the run is made for; it must be sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<PathBuf>,
    /// A forecast fixed beforehand (`train forecast --preregister`), which the run is watched against at
    /// each of its evaluations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<PathBuf>,
}

/// The state that a branch starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Folder of the run that it belongs to.
    pub run: PathBuf,
    /// Completed updates of that state.
    pub step: u64,
    /// `checkpoint.target` of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Parent {
    /// Where the checkpoints of that run lie.
    ///
    /// # Errors
    /// As [`open_storage`].
    pub fn storage(&self, branch: &RunConfig) -> Result<Arc<dyn Storage>, TrainError> {
        let mut config = branch.clone();
        config.checkpoint.target.clone_from(&self.target);
        open_storage(&config, &self.run)
    }
}

/// Rows of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchConfig {
    /// Rows of the global batch; each has `model.max_seq_len` tokens.
    pub rows: u64,
    /// Rows of one forward pass of a rank; must divide the rank's share of `rows`, which it is
    /// when absent.
    #[serde(default)]
    pub micro_rows: Option<u64>,
}

/// What memory is given for. No setting changes a bit of what a run computes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Activations that the backward pass computes again: `none`, `block` or `save_moe`.
    pub recompute: Recompute,
}

/// What is read (SPEC section 5). Without sources, the corpus that ships with the project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// JSON-lines files (plain, gzip or zstd) or Parquet files to train on.
    pub sources: Vec<PathBuf>,
    /// Files of the same kinds to evaluate on.
    pub heldout: Vec<PathBuf>,
    /// A store made before; instead of `sources`.
    pub store: Option<PathBuf>,
    /// A store of held-out text made before; instead of `heldout`.
    pub heldout_store: Option<PathBuf>,
    /// A `tokenizer.json`; when absent that of `store`, or else of the shipped corpus.
    pub tokenizer: Option<PathBuf>,
    /// Marks around each document.
    pub marks: DocumentMarks,
    /// Where stores are cached.
    pub cache: PathBuf,
    /// Rows within which the mixture is exact.
    pub block_rows: u64,
    /// Weights of cells by block; by their tokens when absent.
    pub stages: Option<Vec<Stage>>,
    /// The longest row that the run may come to, the unit in which data are shuffled; that of
    /// `context` when absent. A row of another length in mid-run must divide it.
    pub longest_row: Option<usize>,
    /// Sees of each cell the share that the run has of a full one, so that a short run repeats its
    /// data as the full one would; all of it when absent. Of the first plan's tokens, as the rates:
    /// a horizon that moves changes no cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_epoching: Option<SimulatedEpoching>,
    /// How often a cell may be read by the horizon; a run that would read one more often is not
    /// started. No limit when absent; `train data mixture plan` then takes 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_epochs: Option<f64>,
    /// How far batches are read ahead, with how many threads and bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub read_ahead: ReadAhead,
}

fn is_default(read_ahead: &ReadAhead) -> bool {
    *read_ahead == ReadAhead::default()
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            heldout: Vec::new(),
            store: None,
            heldout_store: None,
            tokenizer: None,
            marks: DocumentMarks::default(),
            cache: PathBuf::from("runs/cache"),
            block_rows: DEFAULT_BLOCK_ROWS,
            stages: None,
            longest_row: None,
            simulated_epoching: None,
            max_epochs: None,
            read_ahead: ReadAhead::default(),
        }
    }
}

/// When and how the held-out text is evaluated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Steps between evaluations; 0 for none by steps. The end of a run is evaluated in any case.
    pub every: u64,
    /// Evaluations spread evenly over the run, instead of `every`: 20 is one each 5%, which is what
    /// forecasts of a ladder read. 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub points: u64,
    /// Rows of one forward pass.
    pub batch_rows: usize,
    /// Held-out rows taken in evaluations before the last one; 0 for all.
    pub max_rows: usize,
    /// Whether the exchange of training is evaluated too, under names of its own; it may drop.
    #[serde(skip_serializing_if = "is_false")]
    pub as_trained: bool,
    /// Suites beside the held-out text, evaluated whole each time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suites: Vec<SuiteConfig>,
    /// Whether a token bigram of the same training rows is evaluated beside the model.
    pub bigram: bool,
    /// Beginnings of documents that the model continues at each evaluation, into `samples.jsonl`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// New tokens of a continuation, at most.
    #[serde(skip_serializing_if = "is_default_new_tokens")]
    pub new_tokens: usize,
    /// Temperature of the draws; 0 takes the best token each time. Below 1, so that a small model's
    /// unlikely tokens do not drown the likely ones.
    #[serde(skip_serializing_if = "is_default_temperature")]
    pub temperature: f32,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            every: 0,
            points: 0,
            batch_rows: 8,
            max_rows: 0,
            as_trained: false,
            suites: Vec::new(),
            bigram: true,
            prompts: Vec::new(),
            new_tokens: DEFAULT_NEW_TOKENS,
            temperature: DEFAULT_TEMPERATURE,
        }
    }
}

impl EvaluationConfig {
    /// Whether there is an evaluation after update `step` of `horizon`: of points, after the first
    /// update by which their share of the run is done.
    pub fn is_due(&self, step: u64, horizon: u64) -> bool {
        let by_steps = self.every > 0 && step.is_multiple_of(self.every);
        let reached = |step: u64| u128::from(step) * u128::from(self.points) / u128::from(horizon);
        by_steps || (step > 0 && reached(step) > reached(step - 1))
    }

    /// Fails unless a run is evaluated at each 5%, where its forecast is.
    fn has_points_of_forecast(&self, horizon: u64) -> Result<(), TrainError> {
        let mut points = (0..NUM_POINTS).map(|point| point_step(point, horizon));
        match points.find(|step| *step < horizon && !self.is_due(*step, horizon)) {
            None => Ok(()),
            Some(step) => Err(TrainError::config(
                "evaluation.points",
                format!("{}, without an evaluation at step {step}", self.points),
                format!("{NUM_POINTS}, one each 5%, beside `forecast`"),
            )),
        }
    }

    fn validate(&self, horizon: u64) -> Result<(), TrainError> {
        if self.batch_rows == 0 {
            return Err(TrainError::config("evaluation.batch_rows", 0, "at least 1"));
        }
        let sampling = Sampling { temperature: self.temperature, ..Sampling::ALL };
        if let Some((field, found, rule)) = sampling.problem() {
            return Err(TrainError::config(format!("evaluation.{field}"), found, rule));
        }
        SuiteConfig::validate_all(&self.suites)?;
        if self.points > 0 && self.every > 0 {
            let found = format!("{} beside `evaluation.every` = {}", self.points, self.every);
            return Err(TrainError::config("evaluation.points", found, "one of them"));
        }
        if self.points > horizon {
            let needed = format!("at most the {horizon} steps of the run");
            return Err(TrainError::config("evaluation.points", self.points, needed));
        }
        Ok(())
    }
}

const DEFAULT_NEW_TOKENS: usize = 48;
const DEFAULT_TEMPERATURE: f32 = 0.8;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_default_new_tokens(number: &usize) -> bool {
    *number == DEFAULT_NEW_TOKENS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_default_temperature(temperature: &f32) -> bool {
    *temperature == DEFAULT_TEMPERATURE
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_false(switch: &bool) -> bool {
    !*switch
}

/// When state is saved, where, and what is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Whether anything is saved.
    pub enabled: bool,
    /// Where checkpoints lie: a folder, or the address of an object store such as
    /// `s3://bucket/prefix`; `checkpoints` in the run's folder when absent.
    pub target: Option<String>,
    /// Steps between saves; 0 for none by steps. The end of a run is saved in any case.
    pub every: u64,
    /// Seconds between saves, by the first rank's clock; 0 for none by time.
    pub every_secs: u64,
    /// The step of an early first save, so that a run that cannot save is known within minutes; 0
    /// for none.
    pub first: u64,
    /// Checkpoints at multiples of this step are never pruned; 0 for none.
    pub permanent_every: u64,
    /// The newest checkpoints to keep beside permanent and pinned ones and parents of other runs;
    /// 0 keeps all.
    pub keep_last: u64,
    /// Whether steps go on while state is written; it takes up to one more copy of the state.
    pub background: bool,
    /// Steps after which a save that failed is tried again.
    pub retry_after: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            target: None,
            every: 0,
            every_secs: 0,
            first: 0,
            permanent_every: 0,
            keep_last: 0,
            background: false,
            retry_after: 10,
        }
    }
}

impl RunConfig {
    /// Tokens of a step.
    pub fn tokens_per_step(&self) -> u64 {
        self.batch.rows * self.model.max_seq_len as u64
    }

    /// Tokens of the whole run.
    pub fn total_tokens(&self) -> u64 {
        self.tokens_per_step() * self.schedule.horizon()
    }

    /// Rows of a step that each rank takes.
    pub fn rows_per_rank(&self) -> u64 {
        self.batch.rows / self.parallel.num_ranks()
    }

    /// Rows of one forward pass of a rank.
    pub fn micro_rows(&self) -> u64 {
        self.batch.micro_rows.unwrap_or(self.rows_per_rank())
    }

    /// Peak rates and constants of the optimizer.
    pub fn peaks(&self) -> Peaks {
        // Of the first plan: what is in mid-run planned anew keeps its rates at the join.
        let per_step = self.tokens_per_step();
        let tokens = per_step * self.schedule.steps;
        Peaks::new(&self.optimizer, tokens, self.model.hidden_dim, per_step)
    }

    /// The first field by which a device needs bf16.
    pub fn bf16_field(&self) -> Option<&'static str> {
        let fields = [
            ("model.compute", self.model.compute == Compute::Bf16),
            ("model.router_dot", self.model.router_dot == RouterDot::Bf16),
            ("optimizer.momentum_dtype", self.optimizer.momentum_dtype == MomentumDtype::Bf16),
            ("optimizer.newton_schulz", self.optimizer.newton_schulz == NewtonSchulzKind::Bf16),
        ];
        fields.into_iter().find(|(_, bf16)| *bf16).map(|(field, _)| field)
    }

    /// A digest of every field, in hexadecimal.
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).expect("a config of plain values");
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// Checks every part and every rule that spans parts, before anything is allocated.
    ///
    /// # Errors
    /// The first broken rule, naming field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.model.validate()?;
        self.schedule.validate()?;
        self.optimizer.validate()?;
        self.parallel.validate(self.model.num_experts)?;
        self.batch_divides()?;
        self.validate_context()?;
        if self.name.is_empty() || self.name.contains(['/', '\\']) {
            return Err(TrainError::config("name", format!("{:?}", self.name), "a file name"));
        }
        self.evaluation.validate(self.schedule.horizon())?;
        if self.forecast.is_some() {
            self.evaluation.has_points_of_forecast(self.schedule.horizon())?;
        }
        self.log.validate()?;
        self.guard.validate()?;
        self.alarms.validate()?;
        if let Some(cap) = self.data.max_epochs.filter(|cap| cap.is_nan() || *cap <= 0.0) {
            return Err(TrainError::config("data.max_epochs", cap, "a number above 0"));
        }
        if self.data.read_ahead.threads == 0 || self.data.read_ahead.batches == 0 {
            let found = format!("{:?}", self.data.read_ahead);
            return Err(TrainError::config(
                "data.read_ahead",
                found,
                "a thread and a batch or more",
            ));
        }
        if self.data.store.is_some() && !self.data.sources.is_empty() {
            return Err(TrainError::config(
                "data.store",
                "given beside `data.sources`",
                "one of them",
            ));
        }
        Ok(())
    }

    fn batch_divides(&self) -> Result<(), TrainError> {
        let (rows, ranks) = (self.batch.rows, self.parallel.num_ranks());
        if rows == 0 || !rows.is_multiple_of(ranks) {
            let rule = match ranks {
                1 => "at least 1".to_owned(),
                _ => format!("a multiple of {ranks}, so that each rank takes whole rows"),
            };
            return Err(TrainError::config("batch.rows", rows, rule));
        }
        let (rows, micro) = (self.rows_per_rank(), self.micro_rows());
        if micro == 0 || !rows.is_multiple_of(micro) {
            let rule = format!("a divisor of the {rows} rows that a rank takes");
            return Err(TrainError::config("batch.micro_rows", micro, rule));
        }
        Ok(())
    }
}
