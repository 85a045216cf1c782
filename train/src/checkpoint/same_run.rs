//! Whether a checkpoint is one of this run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use super::manifest::Manifest;
use super::save::Run;
use super::{RECIPE, census, file_name, step_name};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::operations::same_past;
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
    same_past(&saved, run.config, manifest.position()).map_err(|(field, found, needed)| {
        let problem = format!("field `{field}` is {found} there and {needed} in this run");
        let path = run.storage.locate(&step_name(manifest.step)).into();
        TrainError::Checkpoint { path, problem }
    })
}
