//! Held-out text and the weights of a checkpoint or an export, outside of a run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fulmar_data::{Batch, EvalRows};
use fulmar_ep::transport::Group;
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_eval::{EvalReport, ModelScorer};

use crate::assemble;
use crate::checkpoint::MANIFEST;
use crate::config::{DataConfig, EvaluationConfig, RunConfig};
use crate::device::{self, DeviceChoice};
use crate::error::TrainError;
use crate::interchange::{Folder, Saved, Weights, load};
use crate::json_lines;
use crate::launch::on_ranks;
use crate::parallel::RankKind;
use crate::report::heldout_table;
use crate::telemetry::{Metrics, names};

/// Where metrics of the held-out text stand when nothing can be dropped, in a run's log too.
pub const DROPLESS: &str = "eval/heldout";
/// Where they stand when assignments may be dropped as they are in training.
pub const AS_TRAINED: &str = "eval_as_trained/heldout";
/// Name of the recorded evaluations in a run's folder.
pub const EVALUATIONS_FILE: &str = "evaluations.jsonl";

/// How weights are evaluated.
#[derive(Debug, Clone, Default)]
pub struct EvaluateOptions {
    /// Completed updates of the checkpoints of a run; the newest one's when empty.
    pub steps: Vec<u64>,
    /// The device.
    pub device: DeviceChoice,
    /// Files of held-out text, instead of the recipe's.
    pub heldout: Vec<PathBuf>,
    /// A store of held-out text, instead of the recipe's.
    pub heldout_store: Option<PathBuf>,
    /// Where stores of held-out files are cached, instead of the recipe's place.
    pub cache: Option<PathBuf>,
    /// Rows of a forward pass, which changes no figure; the recipe's when absent.
    pub batch_rows: Option<usize>,
    /// Whether the exchange of training is evaluated beside the one that drops nothing.
    pub as_trained: bool,
}

/// Held-out figures of some weights.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The checkpoint, or the exported folder.
    pub weights: PathBuf,
    /// Completed updates, of a checkpoint.
    pub step: Option<u64>,
    /// Names the contents of the held-out store, whatever its path.
    pub heldout: String,
    /// Without drops.
    pub dropless: EvalReport,
    /// With the exchange of training.
    pub as_trained: Option<AsTrained>,
}

/// Figures with the exchange of training.
#[derive(Debug, Clone)]
pub struct AsTrained {
    /// Name of the exchange.
    pub exchange: &'static str,
    /// The shards it runs between.
    pub shards: usize,
    /// The figures.
    pub report: EvalReport,
}

impl Evaluation {
    /// Everything by name, of both ways separately.
    pub fn metrics(&self) -> Metrics {
        let mut all = Metrics::new();
        all.insert("weights".to_owned(), self.weights.display().to_string().into());
        if let Some(step) = self.step {
            all.insert(names::STEP.to_owned(), step.into());
        }
        all.insert("heldout".to_owned(), self.heldout.clone().into());
        all.extend(metrics(DROPLESS, &self.dropless));
        if let Some(AsTrained { exchange, shards, report }) = &self.as_trained {
            all.insert("eval_as_trained/exchange".to_owned(), (*exchange).into());
            all.insert("eval_as_trained/shards".to_owned(), (*shards).into());
            all.extend(metrics(AS_TRAINED, report));
        }
        all
    }

    /// The table that the end of a run prints, for people.
    pub fn table(&self) -> String {
        let step = self.step.map_or_else(String::new, |step| format!(" (step {step})"));
        let mut text = format!("{}{step}\n", self.weights.display());
        if let Some(AsTrained { exchange, shards, .. }) = &self.as_trained {
            text += &format!("as-trained: exchange {exchange} between {shards} shards\n");
        }
        let beside = self.as_trained.as_ref().map(|lossy| ("as-trained", &lossy.report));
        text + &heldout_table(&self.dropless, beside)
    }
}

/// Figures of a report by name, `under` a place.
pub fn metrics(under: &str, report: &EvalReport) -> Metrics {
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("{under}/{name}"), names::number(value));
    };
    put("loss", report.total().loss());
    put("macro_loss", report.macro_loss());
    put("bpb", report.total().bits_per_byte());
    put("macro_bpb", report.macro_bits_per_byte());
    for (domain, tally) in &report.domains {
        put(&format!("{domain}/loss"), tally.loss());
        put(&format!("{domain}/bpb"), tally.bits_per_byte());
    }
    metrics.insert(format!("{under}/partial_documents"), report.partial_documents.into());
    metrics
}

/// Evaluates the checkpoints of a run that are asked for, one checkpoint's folder, or a folder in the
/// published layout; every expert is in this process, whatever layout the weights were trained on.
///
/// # Errors
/// If there are no such weights, they are damaged, or the held-out text cannot be read.
pub fn evaluate(
    place: &Path,
    options: &EvaluateOptions,
    each: &mut dyn FnMut(Evaluation) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    if !place.join(MANIFEST).exists() && Folder::is_one(place) {
        return each(evaluate_folder(place, options)?);
    }
    let newest = [None];
    let asked: Vec<Option<u64>> = options.steps.iter().copied().map(Some).collect();
    for step in if asked.is_empty() { &newest[..] } else { &asked } {
        each(evaluate_saved(&Saved::find(place, *step)?, options)?)?;
    }
    Ok(())
}

fn evaluate_saved(saved: &Saved, options: &EvaluateOptions) -> Result<Evaluation, TrainError> {
    let config = saved.config();
    device::require_types(config, &device::open(options.device)?)?;
    let (rows, heldout) = heldout(saved, &config.data, options)?;
    let batch_rows = options.batch_rows.unwrap_or(config.evaluation.batch_rows);
    let dropless = dropless(saved, &rows, batch_rows, options.device)?;
    let as_trained = match options.as_trained {
        true => Some(as_trained(saved, &rows, &dropless, options.device)?),
        false => None,
    };
    let (weights, step) = (saved.folder(), Some(saved.step()));
    Ok(Evaluation { weights, step, heldout, dropless, as_trained })
}

fn evaluate_folder(place: &Path, options: &EvaluateOptions) -> Result<Evaluation, TrainError> {
    let of_run = |flag: &str| {
        let found = format!("given for {}", place.display());
        TrainError::config(
            flag,
            found,
            "a run or a checkpoint: an export has no recipe and no step",
        )
    };
    if options.as_trained {
        return Err(of_run("--as-trained"));
    }
    if !options.steps.is_empty() {
        return Err(of_run("--step"));
    }
    let folder = Folder::open(place)?;
    let data = DataConfig { tokenizer: folder.tokenizer_path(), ..DataConfig::default() };
    let (rows, heldout) = heldout(&folder, &data, options)?;
    let batch_rows = options.batch_rows.unwrap_or(EvaluationConfig::default().batch_rows);
    let dropless = dropless(&folder, &rows, batch_rows, options.device)?;
    let weights = place.to_owned();
    Ok(Evaluation { weights, step: None, heldout, dropless, as_trained: None })
}

/// The held-out rows that the flags name, or else the recipe.
fn heldout(
    weights: &dyn Weights,
    data: &DataConfig,
    options: &EvaluateOptions,
) -> Result<(EvalRows, String), TrainError> {
    let mut data = data.clone();
    if options.heldout_store.is_some() || !options.heldout.is_empty() {
        data.heldout.clone_from(&options.heldout);
        data.heldout_store.clone_from(&options.heldout_store);
    }
    if let Some(cache) = &options.cache {
        data.cache.clone_from(cache);
    }
    assemble::heldout(weights.model(), &data)
}

fn dropless(
    weights: &dyn Weights,
    rows: &EvalRows,
    batch_rows: usize,
    device: DeviceChoice,
) -> Result<EvalReport, TrainError> {
    if batch_rows == 0 {
        return Err(TrainError::config("--batch-rows", 0, "at least 1"));
    }
    let device = device::open(device)?.device;
    let num_experts = weights.model().num_experts;
    let model = load(weights, 0..num_experts, &device)?;
    let dispatcher = Dispatcher::dropless(num_experts, &Group::solo())?;
    let scorer = ModelScorer::new(&model, &dispatcher, &device);
    let nats = |batch: &Batch| scorer.nats(batch);
    Ok(fulmar_eval::evaluate(rows, batch_rows, 0, &Group::solo(), nats)?)
}

/// One replica of the recipe's shards as threads, with the exchange of the step and the rows of a
/// training micro-batch on each: what is dropped depends on all of them. One shard exchanges nothing
/// and has the figures without drops.
fn as_trained(
    saved: &Saved,
    rows: &EvalRows,
    dropless: &EvalReport,
    device: DeviceChoice,
) -> Result<AsTrained, TrainError> {
    let mut config: RunConfig = saved.config().clone();
    config.parallel.ranks = RankKind::Threads;
    let batch_rows = config.micro_rows() as usize;
    config.parallel.replicas = 1;
    let exchange = *config.parallel.dispatch_at(saved.step());
    if exchange == DispatchConfig::Local {
        return Ok(AsTrained { exchange: exchange.name(), shards: 1, report: dropless.clone() });
    }
    let num_experts = config.model.num_experts;
    let report = on_ranks(&config, |world: &World| {
        let device = device::open(device)?.device;
        let model = load(saved, world.experts(num_experts), &device)?;
        let dispatcher = Dispatcher::new(&exchange, num_experts, &world.expert)?;
        let scorer = ModelScorer::new(&model, &dispatcher, &device);
        let mut pass = 0;
        let nats = |batch: &Batch| {
            let first = (pass * world.all.size() + world.all.rank()) * batch_rows;
            pass += 1;
            scorer.nats(&filled_up(batch, batch_rows, first < rows.num_rows()))
        };
        Ok(fulmar_eval::evaluate(rows, batch_rows, 0, &world.all, nats)?)
    })?;
    Ok(AsTrained { exchange: exchange.name(), shards: config.parallel.shards, report })
}

/// A batch with padding up to `num_rows`, so that all shards exchange as many tokens as in training;
/// one that is not `wanted` is padding altogether.
fn filled_up(batch: &Batch, num_rows: usize, wanted: bool) -> Batch {
    let mut batch = batch.clone();
    let len = num_rows * batch.seq_len;
    batch.num_rows = num_rows;
    batch.tokens.resize(len, 0);
    batch.targets.resize(len, 0);
    batch.loss_weight.resize(len, 0.0);
    batch.segment_ids.resize(len, 0);
    batch.token_valid.resize(len, false);
    batch.cells.resize(num_rows, 0);
    batch.first_documents.resize(num_rows, 0);
    if !wanted {
        batch.token_valid.fill(false);
    }
    batch
}

/// Appends an evaluation to the record of the run in `folder`, a line of JSON.
///
/// # Errors
/// If the folder is no run's, or the file cannot be written.
pub fn record(folder: &Path, evaluation: &Evaluation) -> Result<(), TrainError> {
    if evaluation.step.is_none() || folder.join(MANIFEST).exists() {
        let found = format!("given for {}", folder.display());
        return Err(TrainError::config("--record", found, "a run, whose folder takes the record"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut metrics = evaluation.metrics();
    metrics.insert("unix_secs".to_owned(), now.into());
    let line = serde_json::to_string(&metrics).expect("plain values") + "\n";
    let path = folder.join(EVALUATIONS_FILE);
    let mut file = json_lines::append_to(&path)?;
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
    written.map_err(TrainError::io("write", &path))
}
