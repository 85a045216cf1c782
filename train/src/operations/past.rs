//! Whether a saved state was made by the plan in force.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Position;
use crate::config::RunConfig;

/// Parts of a recipe that may change between attempts.
const FREE: [&str; 11] = [
    "name",
    "parallel",
    "memory",
    "evaluation",
    "checkpoint",
    "log",
    "guard",
    "alarms",
    "parent",
    "experiment",
    "forecast",
];

/// The first field in which what `saved` did until `at` differs from what `config` would have done:
/// its path, its value there and here.
///
/// What may change between attempts is left out: where a run leaves its traces and how often, when it
/// is said to be unwell, how many ranks there are and how they exchange rows (no part of the state),
/// files (their contents are compared by the store's digest), and every change of plan that lies ahead.
pub fn same_past(
    saved: &RunConfig,
    config: &RunConfig,
    at: Position,
) -> Result<(), (String, String, String)> {
    let (mut there, mut here) = (past(saved, at), past(config, at));
    // Stages that are not given follow from the store; what they dealt is compared by the rows that
    // each cell gave.
    if saved.data.stages.is_none() || config.data.stages.is_none() {
        for value in [&mut there, &mut here] {
            value["data"]["stages"] = Value::Null;
        }
    }
    match first_difference("", &there, &here) {
        None => Ok(()),
        Some(difference) => Err(difference),
    }
}

/// What of a plan has had effect until `at`.
fn past(config: &RunConfig, at: Position) -> Value {
    let mut config = config.clone();
    let longest_row = config.longest_row();
    config.schedule.replans.retain(|replan| replan.from < at.step);
    config.context.truncate(config.open_stages(at.batches));
    if config.optimizer.gate_router_decay_from >= at.step {
        config.optimizer.gate_router_decay = 0.0;
    }
    if config.optimizer.gate_router_decay == 0.0 {
        config.optimizer.gate_router_decay_from = 0;
    }
    let begun = (at.batches * config.batch.rows).div_ceil(config.data.block_rows);
    if let Some(stages) = &mut config.data.stages {
        stages.retain(|stage| stage.from_block == 0 || stage.from_block < begun);
    }
    // When a stage was to open is of the past; when it did is what counts.
    let opened: Vec<Value> = config
        .context
        .iter()
        .map(|stage| json!({ "seq_len": stage.seq_len, "opened_at": stage.opened_at }))
        .collect();
    let mixture = json!({
        "block_rows": config.data.block_rows,
        "stages": config.data.stages,
        "longest_row": longest_row,
        "simulated_epoching": config.data.simulated_epoching,
    });
    let mut value = serde_json::to_value(&config).expect("a config of plain values");
    let fields = value.as_object_mut().expect("a struct");
    for free in FREE {
        fields.remove(free);
    }
    fields.insert("data".to_owned(), mixture);
    fields.insert("context".to_owned(), opened.into());
    value
}

/// The first field, by its path from `path`, in which two values differ, and both sides of it.
pub(crate) fn first_difference(
    path: &str,
    left: &Value,
    right: &Value,
) -> Option<(String, String, String)> {
    if let (Some(a), Some(b)) = (left.as_object(), right.as_object()) {
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        return keys.into_iter().find_map(|key| {
            let path = fulmar_model::role::join(path, key);
            let of = |object: &serde_json::Map<String, Value>| {
                object.get(key).cloned().unwrap_or(Value::Null)
            };
            first_difference(&path, &of(a), &of(b))
        });
    }
    (left != right).then(|| (path.to_owned(), left.to_string(), right.to_string()))
}
