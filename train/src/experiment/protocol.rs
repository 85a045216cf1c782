//! What is written before: `experiment.toml`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::measure::{Criterion, Measure};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::recipe;

/// Name of the protocol in an experiment's folder.
pub const PROTOCOL_FILE: &str = "experiment.toml";

/// What a person writes before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// A line.
    pub title: String,
    /// Where the evidence comes from.
    #[serde(default)]
    pub source: Source,
    /// What is expected, and why.
    pub hypothesis: String,
    /// What is done to find out, and what is kept equal.
    pub plan: String,
    /// When the hypothesis counts as right, in words; `criteria` say it in numbers.
    pub acceptance: String,
    /// The runs that will be made.
    #[serde(default)]
    pub runs: Vec<PlannedRun>,
    /// What is read of each run.
    #[serde(default)]
    pub measures: Vec<Measure>,
    /// All of which must be met.
    #[serde(default)]
    pub criteria: Vec<Criterion>,
    /// What others have recorded; of a public record alone.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// Where the evidence of an experiment comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Runs that are made here.
    #[default]
    #[serde(rename = "runs")]
    Runs,
    /// What others did and published: no run of ours can show that the hypothesis is older, and only
    /// the files' digests are checked.
    #[serde(rename = "public record")]
    PublicRecord,
}

/// A run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRun {
    /// Its name, also that of its recipe in `recipes/` and of its folder.
    pub name: String,
    /// The recipe that it begins from, relative to the experiment's folder.
    pub recipe: PathBuf,
    /// `path=value` changes of it.
    #[serde(default)]
    pub set: Vec<String>,
}

impl PlannedRun {
    /// The whole recipe of the run in the experiment in `folder`, tied to it.
    ///
    /// # Errors
    /// As [`recipe::load`].
    pub fn config(&self, folder: &Path) -> Result<RunConfig, TrainError> {
        let mut config = recipe::load(&folder.join(&self.recipe), &self.set)?;
        config.name.clone_from(&self.name);
        config.experiment = Some(folder.to_owned());
        config.validate()?;
        Ok(config)
    }
}

/// Something that a public record says, and what we get for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What it is.
    pub what: String,
    /// What the record says.
    pub public: String,
    /// Where it says so.
    pub source: String,
    /// What we get.
    #[serde(default)]
    pub ours: String,
    /// How.
    #[serde(default)]
    pub how: String,
}

impl Protocol {
    /// The protocol of the experiment in `folder`.
    ///
    /// # Errors
    /// If there is none, or it is not one; names the field.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(PROTOCOL_FILE);
        let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        let problem = |field: String, problem: String| TrainError::Recipe {
            origin: path.display().to_string(),
            field,
            problem,
        };
        let toml = toml::Deserializer::parse(&text)
            .map_err(|error| problem("(whole file)".to_owned(), error.to_string()))?;
        serde_path_to_error::deserialize(toml)
            .map_err(|error| problem(error.path().to_string(), error.inner().message().to_owned()))
    }

    /// Whether it is complete: every text is there, and runs, measures and criteria fit together.
    ///
    /// # Errors
    /// The first field that is empty or broken.
    pub fn validate(&self) -> Result<(), TrainError> {
        for (field, text) in [
            ("title", &self.title),
            ("hypothesis", &self.hypothesis),
            ("plan", &self.plan),
            ("acceptance", &self.acceptance),
        ] {
            not_empty(field, text)?;
        }
        match self.source {
            Source::Runs => self.validate_runs(),
            Source::PublicRecord => self.validate_facts(),
        }
    }

    fn validate_runs(&self) -> Result<(), TrainError> {
        if !self.facts.is_empty() {
            return refuse("facts", self.facts.len(), "none, but of a `public record`");
        }
        if self.runs.is_empty() {
            return refuse("runs", "empty", "a run or more");
        }
        let runs = distinct("runs", self.runs.iter().map(|run| &run.name))?;
        let measures = distinct("measures", self.measures.iter().map(|measure| &measure.name))?;
        self.measures.iter().try_for_each(Measure::validate)?;
        if self.criteria.is_empty() {
            return refuse("criteria", "empty", "one that can fail, or more");
        }
        self.criteria.iter().try_for_each(|criterion| criterion.validate(&runs, &measures))
    }

    fn validate_facts(&self) -> Result<(), TrainError> {
        let counts = [self.runs.len(), self.measures.len(), self.criteria.len()];
        if counts != [0; 3] {
            let found = format!("{counts:?} runs, measures and criteria");
            return refuse("source", found, "`facts` alone in a public record");
        }
        if self.facts.is_empty() {
            return refuse("facts", "empty", "what the public record says, with its source");
        }
        for fact in &self.facts {
            not_empty("facts.what", &fact.what)?;
            not_empty("facts.public", &fact.public)?;
            not_empty("facts.source", &fact.source)?;
        }
        Ok(())
    }

    /// The planned run of that name.
    pub fn run(&self, name: &str) -> Option<&PlannedRun> {
        self.runs.iter().find(|run| run.name == name)
    }
}

fn refuse<T>(field: &str, found: impl ToString, needed: &str) -> Result<T, TrainError> {
    Err(TrainError::config(format!("{field} of the experiment"), found, needed))
}

fn not_empty(field: &str, text: &str) -> Result<(), TrainError> {
    if text.trim().is_empty() {
        refuse(field, "empty", "text, written before the first step")
    } else {
        Ok(())
    }
}

/// The names, each of which must be there once, and a file's name.
fn distinct<'a>(
    field: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<BTreeSet<&'a str>, TrainError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
            return refuse(field, format!("{name:?}"), "names without slashes");
        }
        if !seen.insert(name.as_str()) {
            return refuse(field, format!("{name:?} twice"), "each name once");
        }
    }
    Ok(seen)
}

/// Writes the form of a protocol into `folder`, for a person to fill in; nothing can be sealed while a
/// text is empty.
///
/// # Errors
/// If there is a protocol already, or it cannot be written.
pub fn found(folder: &Path, title: &str, source: Source) -> Result<PathBuf, TrainError> {
    let path = folder.join(PROTOCOL_FILE);
    if path.exists() {
        let problem = "there is an experiment already; write into its protocol";
        return Err(TrainError::experiment(&path, problem));
    }
    std::fs::create_dir_all(folder).map_err(TrainError::io("create", folder))?;
    let title = toml::Value::String(title.to_owned());
    let (source, rest) = match source {
        Source::Runs => ("", FORM_OF_RUNS),
        Source::PublicRecord => ("source = \"public record\"\n", FORM_OF_FACTS),
    };
    let text = format!("title = {title}\n{source}{FORM}{rest}");
    std::fs::write(&path, text).map_err(TrainError::io("write", &path))?;
    Ok(path)
}

const FORM: &str = "\
# What is expected, and why.
hypothesis = \"\"
# What is done to find out, and what is kept equal.
plan = \"\"
# When the hypothesis counts as right. It must be possible that it does not.
acceptance = \"\"
";

const FORM_OF_RUNS: &str = "
# A table a run; its recipe is relative to this folder.
# [[runs]]
# name = \"with\"
# recipe = \"../../recipes/mini_d48.toml\"
# set = [\"seed=1\"]

# What is read of each run: `last`, `mean`, `least` or `most` of a metric, `from` a share of the run on.
# [[measures]]
# name = \"loss\"
# metric = \"eval/heldout/macro_loss\"
# take = \"last\"

# The rule in numbers: the mean over `of`, less that over `against` (`by = \"ratio\"`: divided by it).
# [[criteria]]
# text = \"0.01 nats are gained\"
# measure = \"loss\"
# of = [\"with\"]
# against = [\"without\"]
# at_most = -0.01
";

const FORM_OF_FACTS: &str = "
# What others recorded, with its address, and what we get for it.
# [[facts]]
# what = \"\"
# public = \"\"
# source = \"https://\"
# ours = \"\"
# how = \"\"
";
