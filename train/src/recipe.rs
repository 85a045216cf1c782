//! A recipe file, with overrides, to a [`RunConfig`].

use std::path::Path;

use fulmar_model::Preset;
use serde::Deserialize;
use toml::{Table, Value};

use crate::config::RunConfig;
use crate::error::TrainError;

/// Names at least this alike (Jaro-Winkler, 0 to 1) are worth suggesting.
const NEAR: f64 = 0.75;

/// Reads and validates a recipe, with `path=value` overrides applied in order.
///
/// # Errors
/// Names the file and the field: not TOML, unknown (with the nearest known name), of the wrong
/// type, missing, or against a rule.
pub fn load(path: &Path, overrides: &[String]) -> Result<RunConfig, TrainError> {
    let text = std::fs::read_to_string(path).map_err(TrainError::io("read recipe", path))?;
    parse(&text, &path.display().to_string(), overrides)
}

/// As [`load`], from text; `origin` names it in errors.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, origin: &str, overrides: &[String]) -> Result<RunConfig, TrainError> {
    let not_toml = |error: toml::de::Error| recipe_error(origin, "", error.to_string());
    let mut table: Table = text.parse().map_err(not_toml)?;
    for assignment in overrides {
        apply(&mut table, assignment)?;
    }
    fill_in_preset(&mut table, origin)?;
    let config: RunConfig = serde_path_to_error::deserialize(Value::Table(table))
        .map_err(|error| unreadable(origin, &error))?;
    config.validate()?;
    Ok(config)
}

/// The recipe as TOML with every default written out.
///
/// # Panics
/// Never for a validated config: it holds plain values only.
pub fn to_toml(config: &RunConfig) -> String {
    toml::to_string_pretty(config).expect("a config of plain values")
}

fn recipe_error(origin: &str, field: &str, problem: impl Into<String>) -> TrainError {
    let field = if field.is_empty() { "(whole file)" } else { field };
    TrainError::Recipe {
        origin: origin.to_owned(),
        field: field.to_owned(),
        problem: problem.into(),
    }
}

fn unreadable(origin: &str, error: &serde_path_to_error::Error<toml::de::Error>) -> TrainError {
    let message = error.inner().message().to_owned();
    recipe_error(origin, &error.path().to_string(), with_suggestion(message))
}

/// Serde lists the known names after `expected`; the nearest one is what was meant.
fn with_suggestion(message: String) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(found) = quoted.next().filter(|_| message.starts_with("unknown ")) else {
        return message;
    };
    let distance = |name: &str| strsim::jaro_winkler(found, name);
    let nearest = quoted.max_by(|a, b| distance(a).total_cmp(&distance(b)));
    match nearest.filter(|name| distance(name) >= NEAR) {
        Some(nearest) => format!("{message}; did you mean `{nearest}`?"),
        None => message,
    }
}

/// `a.b.c=value`: the value is TOML, or else a string.
fn apply(table: &mut Table, assignment: &str) -> Result<(), TrainError> {
    let origin = format!("--set {assignment}");
    let (path, text) = assignment
        .split_once('=')
        .ok_or_else(|| recipe_error(&origin, assignment, "needs the form path=value"))?;
    let value = match format!("value = {text}").parse::<Table>() {
        Ok(mut parsed) => parsed.remove("value").expect("the one key of the table"),
        Err(_) => Value::String(text.to_owned()),
    };
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().expect("split gives at least one part");
    let mut table = table;
    for key in keys {
        let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
        table = entry
            .as_table_mut()
            .ok_or_else(|| recipe_error(&origin, path, format!("`{key}` holds no fields")))?;
    }
    table.insert(last.to_owned(), value);
    Ok(())
}

/// Replaces `model.preset` by the fields of that preset which the recipe does not give.
fn fill_in_preset(table: &mut Table, origin: &str) -> Result<(), TrainError> {
    let Some(model) = table.get_mut("model").and_then(Value::as_table_mut) else { return Ok(()) };
    let Some(preset) = model.remove("preset") else { return Ok(()) };
    let named = preset.as_str().and_then(Preset::from_name).ok_or_else(|| {
        let names = Preset::ALL.map(Preset::name).join(", ");
        recipe_error(origin, "model.preset", format!("found {preset}, needed one of {names}"))
    })?;
    let fields = Table::try_from(named.config()).expect("a config of plain values");
    for (field, value) in fields {
        model.entry(field).or_insert(value);
    }
    Ok(())
}

impl RunConfig {
    /// The published recipe of a rung: its batch and its steps, defaults elsewhere.
    pub fn preset(preset: Preset) -> Self {
        let text = format!(
            "name = \"{name}\"\nmodel.preset = \"{name}\"\nbatch.rows = {}\nschedule.steps = {}\n",
            preset.batch_rows(),
            preset.steps(),
            name = preset.name(),
        );
        parse(&text, preset.name(), &[]).expect("presets are valid")
    }
}

/// Deserializes a value that must be the whole of a TOML text; for files the run wrote itself.
pub(crate) fn from_toml<T: for<'de> Deserialize<'de>>(
    text: &str,
    origin: &str,
) -> Result<T, TrainError> {
    toml::from_str(text).map_err(|error| recipe_error(origin, "", error.to_string()))
}

#[cfg(test)]
mod tests;
