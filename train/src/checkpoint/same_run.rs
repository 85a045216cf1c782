//! Whether a checkpoint is one of this run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use super::manifest::Manifest;
use super::save::Run;
use super::{RECIPE, census, file_name, step_name};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::optim::OptimizerTable;
use crate::recipe;

/// Fails with the first thing in which a checkpoint is not of this run; `text` is its recipe.
pub(super) fn check(
    manifest: &Manifest,
    text: &str,
    run: &Run<'_>,
    table: &OptimizerTable,
) -> Result<(), TrainError> {
    let path = PathBuf::from(run.storage.locate(&step_name(manifest.step)));
    same_recipe(manifest, text, run)?;
    let compare = |what: &str, found: &dyn Display, needed: &dyn Display| {
        let (found, needed) = (found.to_string(), needed.to_string());
        let problem = format!("{what} {found}, needed {needed}");
        if found == needed { Ok(()) } else { Err(TrainError::checkpoint(&path, problem)) }
    };
    compare("was trained on data", &manifest.data, &run.data)?;
    compare("optimizer table", &manifest.optimizer_table, &table.digest())?;
    compare("seed", &manifest.seed, &run.config.seed)?;
    let generators = census::generators(run.config, manifest.batches);
    for (found, needed) in manifest.generators.iter().zip(&generators) {
        let said = |g: &super::manifest::Generator| {
            format!("generator of {} at {} with seed {}", g.name, g.position, g.seed)
        };
        compare("has the", &said(found), &said(needed))?;
    }
    compare("number of generators", &manifest.generators.len(), &generators.len())?;
    let cells: BTreeMap<_, _> = manifest.consumed.iter().chain(&run.consumed).collect();
    for cell in cells.into_keys() {
        let rows = |of: &BTreeMap<String, u64>| of.get(cell).copied().unwrap_or(0);
        let what = format!("rows taken from `{cell}`:");
        compare(&what, &rows(&manifest.consumed), &rows(&run.consumed))?;
    }
    Ok(())
}

/// Fails with the first field in which the checkpoint's recipe differs where it must not.
fn same_recipe(manifest: &Manifest, text: &str, run: &Run<'_>) -> Result<(), TrainError> {
    let file = run.storage.locate(&file_name(manifest.step, RECIPE));
    let saved: RunConfig = recipe::from_toml(text, &file)?;
    let value = |config: &RunConfig| {
        let mut value = serde_json::to_value(config).expect("a config of plain values");
        if let Some(fields) = value.as_object_mut() {
            // Where a run leaves its traces and how often may change between attempts. Files may
            // move: what is in them is compared by the store's digest.
            // Ranks and exchanges are no part of the state.
            for free in ["name", "parallel", "evaluation", "checkpoint", "log", "guard"] {
                fields.remove(free);
            }
            let mixture = serde_json::json!({
                "block_rows": config.data.block_rows,
                "stages": config.data.stages,
            });
            fields.insert("data".to_owned(), mixture);
        }
        value
    };
    match first_difference("", &value(&saved), &value(run.config)) {
        None => Ok(()),
        Some((field, found, needed)) => {
            let problem = format!("field `{field}` is {found} there and {needed} in this run");
            let path = run.storage.locate(&step_name(manifest.step)).into();
            Err(TrainError::Checkpoint { path, problem })
        }
    }
}

fn first_difference(
    path: &str,
    left: &serde_json::Value,
    right: &serde_json::Value,
) -> Option<(String, String, String)> {
    if let (Some(a), Some(b)) = (left.as_object(), right.as_object()) {
        let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        let null = serde_json::Value::Null;
        return keys.into_iter().find_map(|key| {
            let path = fulmar_model::role::join(path, key);
            first_difference(&path, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null))
        });
    }
    (left != right).then(|| (path.to_owned(), left.to_string(), right.to_string()))
}
