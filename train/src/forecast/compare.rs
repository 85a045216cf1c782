//! In what the runs of a ladder differ, and may not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fulmar_ep::DispatchConfig;
use serde_json::{Value, json};

use super::RungsError;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::past_run::PastRun;
use crate::telemetry::throughput::FLOPS_RULE;
use crate::telemetry::{jsonl, names};

/// What a ladder varies, and what changes no loss: fields of a recipe by path.
const FREE: [&str; 33] = [
    "name",
    "seed",
    "model.hidden_dim",
    "model.num_layers",
    "model.num_heads",
    "model.local_kv_heads",
    "model.global_kv_heads",
    "model.intermediate_dim",
    "model.latent_dim",
    "model.shared_intermediate_dim",
    "batch",
    "schedule.steps",
    "schedule.warmup_steps",
    "schedule.replans",
    "optimizer.gate_router_decay_from",
    "data.cache",
    "data.block_rows",
    "data.longest_row",
    "data.max_epochs",
    "data.read_ahead",
    "data.stages",
    // Compared by what they hold, where that is known.
    "data.sources",
    "data.store",
    "data.heldout",
    "data.heldout_store",
    "data.tokenizer",
    "parallel",
    "memory",
    "checkpoint",
    "log",
    "guard",
    "alarms",
    "parent",
];

/// Parts of `evaluation` that decide what a loss is of.
const EVALUATION: [&str; 2] = ["max_rows", "suites"];

/// Further parts of a recipe that are none of what it computes.
const LINKS: [&str; 2] = ["forecast", "experiment"];

/// A field in which two runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the field, or what it is called.
    pub field: String,
    /// Its value in one.
    pub left: String,
    /// Its value in the other.
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({} and {})", self.field, self.left, self.right)
    }
}

/// What is compared of a run or a recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    name: String,
    /// What must be the same, by path.
    fields: BTreeMap<String, String>,
    /// Digest of what was trained on, of a run that was begun.
    data: Option<String>,
    /// Digest of what was evaluated on, where the run recorded it.
    heldout: Option<String>,
    /// The same as the recipe names it.
    data_paths: String,
    heldout_paths: String,
}

impl Side {
    /// Of a run that was begun, whose losses are `metric`.
    ///
    /// # Errors
    /// If its log cannot be read.
    pub fn of_run(run: &PastRun, metric: &str) -> Result<Self, TrainError> {
        let mut side = Self::of_recipe(&run.config, metric);
        side.data = run.data_digest().map(str::to_owned);
        side.heldout = run.heldout_digest().map(str::to_owned);
        if let Some(rule) = flops_rule_of_log(run)? {
            side.fields.insert("throughput/flops_rule".to_owned(), rule);
        }
        Ok(side)
    }

    /// Of a recipe, whose losses will be `metric`.
    pub fn of_recipe(config: &RunConfig, metric: &str) -> Self {
        let data = &config.data;
        let paths = |value: Value| value.to_string();
        Self {
            name: config.name.clone(),
            fields: fields(config, metric),
            data: None,
            heldout: None,
            data_paths: paths(json!([data.sources, data.store, data.tokenizer])),
            heldout_paths: paths(json!([data.heldout, data.heldout_store, data.tokenizer])),
        }
    }
}

/// Everything that a ladder may not vary, by path.
fn fields(config: &RunConfig, metric: &str) -> BTreeMap<String, String> {
    let mut value = serde_json::to_value(config).expect("a config of plain values");
    for path in FREE.iter().chain(&LINKS) {
        remove(&mut value, path);
    }
    if let Some(evaluation) = value.get_mut("evaluation").and_then(Value::as_object_mut) {
        evaluation.retain(|field, _| EVALUATION.contains(&&field[..]));
        if metric == super::DEFAULT_METRIC {
            evaluation.remove("suites");
        }
    }
    // When a stage begins follows from the steps of a run; what it weighs does not.
    if let Some(stages) = &config.data.stages {
        let weights: Vec<_> = stages.iter().map(|stage| &stage.weights).collect();
        value["data"]["stages"] = json!(weights);
    }
    let mut fields = BTreeMap::new();
    flatten("", &value, &mut fields);
    fields.insert("metric".to_owned(), metric.to_owned());
    fields.insert("drops in training".to_owned(), drops(config));
    fields.insert("throughput/flops_rule".to_owned(), FLOPS_RULE.to_owned());
    fields
}

fn remove(value: &mut Value, path: &str) {
    match path.split_once('.') {
        Some((first, rest)) => {
            if let Some(below) = value.get_mut(first) {
                remove(below, rest);
            }
        }
        None => drop(value.as_object_mut().and_then(|object| object.remove(path))),
    }
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value.as_object() {
        Some(object) => object
            .iter()
            .for_each(|(key, below)| flatten(&fulmar_model::role::join(path, key), below, into)),
        None => _ = into.insert(path.to_owned(), value.to_string()),
    }
}

/// The rules by which a run drops assignments, in the order it takes them; `none` where it cannot.
fn drops(config: &RunConfig) -> String {
    let parallel = &config.parallel;
    let later = parallel.switches.iter().map(|switch| &switch.dispatch);
    let mut rules: Vec<String> =
        std::iter::once(&parallel.dispatch).chain(later).map(rule_of_drops).collect();
    rules.dedup();
    rules.join(", then ")
}

fn rule_of_drops(dispatch: &DispatchConfig) -> String {
    let name = dispatch.name();
    match dispatch {
        DispatchConfig::Local
        | DispatchConfig::Ragged { capacity_factor: None, .. }
        | DispatchConfig::Ring { capacity_factor: None, .. } => "none".to_owned(),
        DispatchConfig::PooledWave {
            num_expert_waves,
            capacity_factor,
            transport_capacity_factor,
            ..
        } => format!(
            "{name}, {num_expert_waves} waves, factors {capacity_factor} and \
             {transport_capacity_factor}"
        ),
        DispatchConfig::Ragged { capacity_factor: Some(factor), .. }
        | DispatchConfig::Ring { capacity_factor: Some(factor), .. }
        | DispatchConfig::FixedCells { capacity_factor: factor, .. } => {
            format!("{name}, factor {factor}")
        }
    }
}

/// Every field in which two runs of a ladder differ and may not.
pub fn differences(left: &Side, right: &Side) -> Vec<Difference> {
    let none = "nothing".to_owned();
    let difference = |field: &str, left: &String, right: &String| {
        let [left, right] = [left, right].map(Clone::clone);
        (left != right).then(|| Difference { field: field.to_owned(), left, right })
    };
    let paths: BTreeSet<&String> = left.fields.keys().chain(right.fields.keys()).collect();
    let mut all: Vec<Difference> = paths
        .into_iter()
        .filter_map(|path| {
            let [left, right] = [left, right].map(|side| side.fields.get(path).unwrap_or(&none));
            difference(path, left, right)
        })
        .collect();
    all.extend(match (&left.data, &right.data) {
        (Some(left), Some(right)) => difference("digest of data and tokenizer", left, right),
        _ => difference("data", &left.data_paths, &right.data_paths),
    });
    all.extend(match (&left.heldout, &right.heldout) {
        (Some(left), Some(right)) => difference("digest of held-out text", left, right),
        _ => difference("data.heldout", &left.heldout_paths, &right.heldout_paths),
    });
    all
}

/// Fails with every field in which one of the runs differs from the first and may not.
///
/// # Errors
/// [`RungsError::Differ`] with the first such pair.
pub fn require_alike(sides: &[&Side]) -> Result<(), RungsError> {
    let Some((first, others)) = sides.split_first() else { return Ok(()) };
    for other in others {
        let differences = differences(first, other);
        if !differences.is_empty() {
            let (left, right) = (first.name.clone(), other.name.clone());
            return Err(RungsError::Differ { left, right, differences });
        }
    }
    Ok(())
}

/// Which FLOPs the speeds in the log of a run count, if it says so.
pub(super) fn flops_rule_of_log(run: &PastRun) -> Result<Option<String>, TrainError> {
    let mut rule = None;
    jsonl::each(&run.folder, |line| {
        let said = line.get(names::FLOPS_RULE).and_then(Value::as_str);
        if let (None, Some(said)) = (&rule, said) {
            rule = Some(said.to_owned());
        }
    })?;
    Ok(rule)
}
