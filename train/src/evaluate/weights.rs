//! The evaluation of checkpoints and exports.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulmar_data::Batch;
use fulmar_ep::Dispatcher;
use fulmar_ep::transport::Group;
use fulmar_eval::{ModelScorer, Suite, documents};

use super::as_trained::as_trained;
use super::evaluation::{Evaluation, Figures, SuiteFigures};
use super::options::EvaluateOptions;
use super::texts::Texts;
use crate::checkpoint::MANIFEST;
use crate::config::{DataConfig, EvaluationConfig};
use crate::device::{self, DeviceChoice};
use crate::error::TrainError;
use crate::interchange::{Folder, Saved, Weights, load};

/// Evaluates the weights of each of `places`, one after another: the checkpoints of a run that are asked
/// for, one checkpoint's folder, or a folder in the published layout. Every expert is in this process,
/// whatever layout the weights were trained on. `each` takes what was found, with its place.
///
/// # Errors
/// If there are no such weights, they are damaged, or the texts cannot be read.
pub fn evaluate(
    places: &[PathBuf],
    options: &EvaluateOptions,
    each: &mut dyn FnMut(&Path, Evaluation) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let mut texts = Texts::default();
    for place in places {
        if !place.join(MANIFEST).exists() && Folder::is_one(place) {
            each(place, evaluate_folder(place, options, &mut texts)?)?;
            continue;
        }
        let newest = [None];
        let asked: Vec<Option<u64>> = options.steps.iter().copied().map(Some).collect();
        for step in if asked.is_empty() { &newest[..] } else { &asked } {
            each(place, evaluate_saved(&Saved::find(place, *step)?, options, &mut texts)?)?;
        }
    }
    Ok(())
}

fn evaluate_saved(
    saved: &Saved,
    options: &EvaluateOptions,
    texts: &mut Texts,
) -> Result<Evaluation, TrainError> {
    let config = saved.config();
    device::require_types(config, &device::open(options.device)?)?;
    let (data, wanted) = (options.data(&config.data), options.suites(&config.evaluation.suites));
    let suites = texts.of(saved.model(), &data, wanted)?;
    let batch_rows = options.batch_rows.unwrap_or(config.evaluation.batch_rows);
    let dropless = dropless(saved, &suites, batch_rows, options.device)?;
    let (exchange, lossy) = if options.as_trained {
        let (exchange, figures) = as_trained(saved, &suites, &dropless, options.device)?;
        (Some(exchange), figures.into_iter().map(Some).collect())
    } else {
        (None, vec![None; suites.len()])
    };
    let suites = together(suites, dropless, lossy);
    Ok(Evaluation { weights: saved.folder(), step: Some(saved.step()), exchange, suites })
}

fn evaluate_folder(
    place: &Path,
    options: &EvaluateOptions,
    texts: &mut Texts,
) -> Result<Evaluation, TrainError> {
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
    let suites = texts.of(folder.model(), &options.data(&data), options.suites(&[]))?;
    let batch_rows = options.batch_rows.unwrap_or(EvaluationConfig::default().batch_rows);
    let dropless = dropless(&folder, &suites, batch_rows, options.device)?;
    let lossy = vec![None; suites.len()];
    let suites = together(suites, dropless, lossy);
    Ok(Evaluation { weights: place.to_owned(), step: None, exchange: None, suites })
}

fn together(
    suites: Vec<Arc<Suite>>,
    dropless: Vec<Figures>,
    as_trained: Vec<Option<Figures>>,
) -> Vec<SuiteFigures> {
    let all = suites.into_iter().zip(dropless).zip(as_trained);
    all.map(|((suite, dropless), as_trained)| SuiteFigures { suite, dropless, as_trained })
        .collect()
}

fn dropless(
    weights: &dyn Weights,
    suites: &[Arc<Suite>],
    batch_rows: usize,
    device: DeviceChoice,
) -> Result<Vec<Figures>, TrainError> {
    if batch_rows == 0 {
        return Err(TrainError::config("--batch-rows", 0, "at least 1"));
    }
    let device = device::open(device)?.device;
    let num_experts = weights.model().num_experts;
    let model = load(weights, 0..num_experts, &device)?;
    let dispatcher = Dispatcher::dropless(num_experts, &Group::solo())?;
    let scorer = ModelScorer::new(&model, &dispatcher, &device);
    let figures_of = |suite: &Arc<Suite>| -> Result<Figures, TrainError> {
        let nats = |batch: &Batch| scorer.nats(batch);
        let sums = documents::score(&suite.rows, batch_rows, 0, &Group::solo(), nats)?;
        Ok(Figures::new(suite, sums))
    };
    suites.iter().map(figures_of).collect()
}
