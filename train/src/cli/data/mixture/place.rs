//! Where a mixture stands: a mixture file, a recipe, a run's folder, or what ships with the project.

use std::path::Path;

use fulmar_data::mixture::{CellSize, MixtureFile, MixtureRun};
use fulmar_data::{Stage, Store};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::{assemble, operations, recipe};

/// The name of the mixture that ships with the project.
const SHIPPED: &str = "harrier";

/// What lies at a place.
pub(super) enum Place {
    /// A mixture file, or the shipped one, with its own cells where they were read already.
    File(Box<MixtureFile>, Option<fulmar_data::mixture::CellTable>),
    /// The plan of a recipe, or the one in force of a run with the step where it stands.
    Recipe(Box<RunConfig>, Option<u64>),
    /// Stages alone, to be put in the place of others.
    Stages(Vec<Stage>),
}

impl Place {
    /// Finds out what lies there.
    pub(super) fn find(path: &Path) -> Result<Self, TrainError> {
        if path.is_dir() {
            let first = recipe::load(&path.join("recipe.toml"), &[])?;
            let at = operations::position(&first, path, None)?;
            let plan = operations::plan_in_force(&first, path, at)?;
            return Ok(Self::Recipe(Box::new(plan), Some(at.step)));
        }
        if path == Path::new(SHIPPED) && !path.exists() {
            let (file, cells) = MixtureFile::harrier()?;
            return Ok(Self::File(Box::new(file), Some(cells)));
        }
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read mixture", path))?;
        // What is not TOML at all is refused by the reader of mixture files.
        let table: toml::Table = text.parse().unwrap_or_default();
        if table.contains_key("model") {
            return Ok(Self::Recipe(Box::new(recipe::load(path, &[])?), None));
        }
        if table.len() == 1 && table.contains_key("stages") {
            return Ok(Self::Stages(operations::read_stages(path)?));
        }
        Ok(Self::File(Box::new(MixtureFile::read(path)?), None))
    }

    /// The run that is meant, over the cells of `store` if one is given.
    pub(super) fn run(&self, store: Option<&Path>) -> Result<MixtureRun, TrainError> {
        let store = store.map(Store::open).transpose()?;
        match (self, store) {
            (Self::File(file, _), Some(store)) => Ok(file.run_over(CellSize::of_store(&store))?),
            (Self::File(file, Some(cells)), None) => Ok(file.run_of_table(cells)?),
            (Self::File(file, None), None) => Ok(file.run()?),
            (Self::Recipe(config, _), Some(store)) => Ok(assemble::mixture_run(config, &store)),
            (Self::Recipe(config, _), None) => {
                let data = assemble::data_unchecked(config)?;
                Ok(assemble::mixture_run(config, data.rows.store()))
            }
            (Self::Stages(_), _) => {
                let rule =
                    "a mixture file, a recipe or a run; stages alone are what `diff` compares";
                Err(TrainError::config("PLACE", "a file of stages alone", rule))
            }
        }
    }

    /// Where the run at this place stands.
    pub(super) fn step(&self) -> Option<u64> {
        match self {
            Self::Recipe(_, step) => *step,
            _ => None,
        }
    }
}
