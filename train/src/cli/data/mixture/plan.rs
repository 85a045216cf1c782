//! `train data mixture plan`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Stage;
use fulmar_data::mixture::{MixtureRun, SimulatedEpoching};

use super::place::Place;
use crate::error::TrainError;

/// Flags of `data mixture plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A mixture file, a recipe, a run's folder, or `harrier`, which ships with the project.
    pub place: PathBuf,
    /// Take the cells of this store.
    #[arg(long)]
    pub store: Option<PathBuf>,
    /// Another number of steps.
    #[arg(long, value_name = "N", conflicts_with = "tokens")]
    pub steps: Option<u64>,
    /// Another number of tokens, to the nearest step.
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// See of each cell the share that the run has of the full one.
    #[arg(long)]
    pub simulate: bool,
    /// The cell that takes the weight of those of which such a run sees nothing.
    #[arg(long, value_name = "CELL", requires = "simulate")]
    pub tail: Option<String>,
    /// Count the epochs so far at this step; where the run stands when absent.
    #[arg(long, value_name = "STEP")]
    pub at: Option<u64>,
    /// Print the stages as a recipe takes them.
    #[arg(long)]
    pub stages: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl PlanArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let mut place = Place::find(&self.place)?;
        let run = self.run(&mut place)?;
        let report = run.report(self.at.or(place.step()).unwrap_or(0))?;
        if self.stages {
            print!("{}", stages_toml(run.visible()?.mixture.stages));
        } else if self.json {
            println!("{}", serde_json::to_string_pretty(&report).expect("plain values"));
        } else {
            print!("{report}");
        }
        // The figures are shown first, so that one sees by how much a plan is refused.
        Ok(report.require_epochs()?)
    }

    /// The run of the place with the changes that were asked for.
    fn run(&self, place: &mut Place) -> Result<MixtureRun, TrainError> {
        if let Place::File(file, _) = place
            && (self.steps.is_some() || self.tokens.is_some())
        {
            (file.steps, file.tokens) = (self.steps, self.tokens);
        }
        let mut run = place.run(self.store.as_deref())?;
        if let (Place::Recipe(..), Some(steps)) = (&*place, self.steps_over(run.tokens_per_step)) {
            run.steps = steps;
        }
        if self.simulate {
            let epoching = run.epoching.get_or_insert_with(SimulatedEpoching::default);
            epoching.tail = self.tail.clone().or(epoching.tail.take());
        }
        Ok(run)
    }

    fn steps_over(&self, tokens_per_step: u64) -> Option<u64> {
        let nearest = |tokens: u64| (tokens + tokens_per_step / 2) / tokens_per_step;
        self.steps.or(self.tokens.map(nearest))
    }
}

/// `[[data.stages]]`, as in a recipe.
fn stages_toml(stages: Vec<Stage>) -> String {
    #[derive(serde::Serialize)]
    struct Data {
        stages: Vec<Stage>,
    }
    #[derive(serde::Serialize)]
    struct Recipe {
        data: Data,
    }
    toml::to_string(&Recipe { data: Data { stages } }).expect("plain values")
}
