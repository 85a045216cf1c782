//! The file of a ladder, and the recipes that it names.

use std::path::{Path, PathBuf};

use fulmar_eval::forecast::{MIN_RUNGS, NUM_POINTS};
use fulmar_model::rung_steps;
use serde::Deserialize;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::forecast::flops;
use crate::recipe;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    out: PathBuf,
    tokens_per_active_param: f64,
    asymptote: f64,
    target: String,
    rungs: Vec<PathBuf>,
}

/// A ladder whose recipes keep its rule.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// Its name.
    pub name: String,
    /// Folder of the runs.
    pub out: PathBuf,
    /// Tokens that a rung trains on for each of its active parameters.
    pub tokens_per_active_param: f64,
    /// Loss that no compute gets below, in nats; chosen before the fit.
    pub asymptote: f64,
    /// Name of the rung that is forecast from those that spend less.
    pub target: String,
    /// The rungs by what they spend, least first.
    pub rungs: Vec<Rung>,
}

/// A rung of a ladder.
#[derive(Debug, Clone)]
pub struct Rung {
    /// File of its recipe.
    pub recipe: PathBuf,
    /// What the recipe says.
    pub config: RunConfig,
    /// Folder of its run.
    pub folder: PathBuf,
}

impl Rung {
    /// Name of the recipe.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Training FLOPs of the whole run without the output head, the compute of forecasts.
    pub fn flops(&self) -> f64 {
        flops(&self.config)
    }
}

impl Ladder {
    /// The ladder in a file; its recipes are named from the file's folder, its runs from the working
    /// folder.
    ///
    /// # Errors
    /// If the file or a recipe cannot be read, two rungs have one name or spend alike, a rung breaks
    /// the rule, there is no target among them, or fewer than three spend less than it.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read ladder", path))?;
        let file: File = recipe::from_toml(&text, &path.display().to_string())?;
        let beside = path.parent().unwrap_or(Path::new(""));
        let mut rungs = Vec::new();
        for recipe in &file.rungs {
            let recipe = beside.join(recipe);
            let config = recipe::load(&recipe, &[])?;
            let folder = file.out.join(&config.name);
            rungs.push(Rung { recipe, config, folder });
        }
        rungs.sort_by(|a, b| a.flops().total_cmp(&b.flops()));
        let File { name, out, tokens_per_active_param, asymptote, target, .. } = file;
        let ladder = Self { name, out, tokens_per_active_param, asymptote, target, rungs };
        ladder.check(path)?;
        Ok(ladder)
    }

    /// The rungs that the target is forecast from.
    pub fn below_target(&self) -> &[Rung] {
        let below = self.rungs.iter().take_while(|rung| rung.name() != self.target).count();
        &self.rungs[..below]
    }

    fn check(&self, path: &Path) -> Result<(), TrainError> {
        let wrong = |field: &str, problem: String| TrainError::Recipe {
            origin: path.display().to_string(),
            field: field.to_owned(),
            problem,
        };
        if !(self.tokens_per_active_param.is_finite() && self.tokens_per_active_param > 0.0) {
            let found = format!("found {}, needed above 0", self.tokens_per_active_param);
            return Err(wrong("tokens_per_active_param", found));
        }
        for rung in &self.rungs {
            self.check_rung(rung).map_err(|problem| wrong("rungs", problem))?;
        }
        let names: Vec<&str> = self.rungs.iter().map(Rung::name).collect();
        if let Some(twice) = (1..names.len()).find(|index| names[..*index].contains(&names[*index]))
        {
            return Err(wrong("rungs", format!("two recipes are named `{}`", names[twice])));
        }
        if let Some(pair) = self.rungs.windows(2).find(|pair| pair[0].flops() == pair[1].flops()) {
            let (first, second) = (pair[0].name(), pair[1].name());
            return Err(wrong("rungs", format!("`{first}` and `{second}` spend the same FLOPs")));
        }
        if !names.contains(&self.target.as_str()) {
            let names = names.join(", ");
            return Err(wrong("target", format!("found `{}`, needed one of {names}", self.target)));
        }
        let below = self.below_target().len();
        if below < MIN_RUNGS {
            let found = format!("{below} rung(s) spend less than it, needed {MIN_RUNGS}");
            return Err(wrong("target", found));
        }
        Ok(())
    }

    /// Why a recipe is no rung of this ladder.
    fn check_rung(&self, rung: &Rung) -> Result<(), String> {
        let (config, name) = (&rung.config, rung.name());
        let steps = rung_steps(&config.model, config.batch.rows, self.tokens_per_active_param);
        if config.schedule.horizon() != steps {
            return Err(format!(
                "`{name}` has {} steps, needed {steps}: {} tokens for each of {} active parameters, \
                 at {} tokens a step",
                config.schedule.horizon(),
                self.tokens_per_active_param,
                config.model.num_active_params(),
                config.tokens_per_step(),
            ));
        }
        let evaluation = &config.evaluation;
        if evaluation.points != NUM_POINTS as u64 || evaluation.max_rows != 0 {
            return Err(format!(
                "`{name}` has {} evaluations over {} rows (0: all), needed \
                 `evaluation.points` = {NUM_POINTS} over all: forecasts compare rungs at each 5%",
                evaluation.points, evaluation.max_rows,
            ));
        }
        Ok(())
    }
}
