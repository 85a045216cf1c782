//! Records of experiments, whatever came of them.

use std::path::{Path, PathBuf};

use maud::{Markup, html};
use serde::Deserialize;

use crate::error::TrainError;
use crate::report_page::charts::missing;

/// What was written before.
const PROTOCOL_FILE: &str = "experiment.toml";
/// What completes it before the first step.
const SEAL_FILE: &str = "seal.json";
/// What was written after.
const CONCLUSION_FILE: &str = "result.json";

/// What the page shows of a record; its files have more.
#[derive(Debug, Clone)]
pub(in crate::report_page) struct Experiment {
    folder: PathBuf,
    protocol: Protocol,
    sealed: bool,
    conclusion: Option<Conclusion>,
}

#[derive(Debug, Clone, Deserialize)]
struct Protocol {
    title: String,
    #[serde(default)]
    source: Option<String>,
    hypothesis: String,
    acceptance: String,
    #[serde(default)]
    facts: Vec<Fact>,
}

#[derive(Debug, Clone, Deserialize)]
struct Fact {
    what: String,
    public: String,
    #[serde(default)]
    ours: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Conclusion {
    verdict: String,
    text: String,
    #[serde(default)]
    missing: Vec<String>,
    #[serde(default)]
    criteria: Vec<Criterion>,
}

#[derive(Debug, Clone, Deserialize)]
struct Criterion {
    text: String,
    value: Option<f64>,
    met: bool,
}

/// The record in `folder`, or those in its subfolders, by name.
///
/// # Errors
/// If the folder or a record cannot be read.
pub(in crate::report_page) fn experiments_in(folder: &Path) -> Result<Vec<Experiment>, TrainError> {
    let mut folders = vec![folder.to_owned()];
    if !folder.join(PROTOCOL_FILE).exists() {
        let list = || -> std::io::Result<Vec<PathBuf>> {
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        folders = list().map_err(TrainError::io("list", folder))?;
    }
    folders.retain(|folder| folder.join(PROTOCOL_FILE).exists());
    folders.sort();
    folders.into_iter().map(Experiment::read).collect()
}

impl Experiment {
    fn read(folder: PathBuf) -> Result<Self, TrainError> {
        let read =
            |path: &Path| std::fs::read_to_string(path).map_err(TrainError::io("read", path));
        let refuse = |path: &Path, problem: String| {
            let (origin, field) = (path.display().to_string(), "(whole file)".to_owned());
            TrainError::Recipe { origin, field, problem }
        };
        let path = folder.join(PROTOCOL_FILE);
        let protocol = toml::from_str(&read(&path)?)
            .map_err(|error: toml::de::Error| refuse(&path, error.to_string()))?;
        let path = folder.join(CONCLUSION_FILE);
        let conclusion = match path.exists() {
            true => Some(
                serde_json::from_str(&read(&path)?)
                    .map_err(|error| refuse(&path, error.to_string()))?,
            ),
            false => None,
        };
        let sealed = folder.join(SEAL_FILE).exists();
        Ok(Self { folder, protocol, sealed, conclusion })
    }

    /// The verdict, or how far it is.
    fn state(&self) -> &str {
        match (&self.conclusion, self.sealed) {
            (Some(conclusion), _) => &conclusion.verdict,
            (None, true) => "sealed, no verdict yet",
            (None, false) => "draft",
        }
    }
}

/// A card a record, negative results like others.
pub(in crate::report_page) fn experiments(records: &Option<Vec<Experiment>>) -> Markup {
    let title = "Experiments";
    match records {
        None => missing(title, "no folder of experiment records was given (--experiments DIR)."),
        Some(records) if records.is_empty() => {
            missing(title, "the folder that was given has no experiment record.")
        }
        Some(records) => html! {
            @for record in records { (card(record)) }
            p.note { "Whether a record was altered since, `train experiment list` says." }
        },
    }
}

fn card(record: &Experiment) -> Markup {
    let Experiment { folder, protocol, conclusion, .. } = record;
    html! {
        div.card {
            h3 { (protocol.title) " — " (record.state()) }
            p.plain { b { "Expected: " } (protocol.hypothesis) }
            p.plain { b { "Counts as right when: " } (protocol.acceptance) }
            @if let Some(conclusion) = conclusion {
                p.plain { b { "Came out: " } (conclusion.text) }
                ul {
                    @for criterion in &conclusion.criteria {
                        li {
                            (criterion.text) ": "
                            @match criterion.value {
                                Some(value) => { (format!("{value:.5}")) }
                                None => { "no value" }
                            }
                            @if criterion.met { ", met" } @else { ", not met" }
                        }
                    }
                }
                @if !conclusion.missing.is_empty() {
                    p.plain { "Planned runs that were not made: " (conclusion.missing.join(", ")) }
                }
            }
            @if !protocol.facts.is_empty() {
                ul {
                    @for fact in &protocol.facts {
                        li {
                            (fact.what) ": " (fact.public)
                            @if !fact.ours.is_empty() { "; ours: " (fact.ours) }
                        }
                    }
                }
            }
            p { code { (folder.display()) }
                @if let Some(source) = &protocol.source { ", source: " (source) } }
        }
    }
}
