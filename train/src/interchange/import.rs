//! Published weights into the folder of a run that has not taken its first step.

use std::path::{Path, PathBuf};

use fulmar_ep::World;
use fulmar_model::ModelConfig;
use toml::{Table, Value};

use super::load::filled;
use super::{Folder, Names, TOKENIZER, Weights, first_contradiction};
use crate::config::RunConfig;
use crate::device::{self, DeviceChoice};
use crate::error::TrainError;
use crate::history::{Event, History};
use crate::state::TrainState;
use crate::storage::open_storage;
use crate::telemetry::jsonl::LOG_FILE;
use crate::{assemble, checkpoint, recipe};

/// How weights become a run.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The folder in the published layout.
    pub folder: PathBuf,
    /// The run's folder, new.
    pub out: PathBuf,
    /// The run's recipe; made from `config.json` and the fields below when absent.
    pub recipe: Option<PathBuf>,
    /// Rows of a step, for a recipe that is made.
    pub rows: Option<u64>,
    /// Steps of the schedule, for a recipe that is made.
    pub steps: Option<u64>,
    /// Further fields of the recipe, `path=value`.
    pub set: Vec<String>,
}

/// What came in.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The recipe, as it lies in the run's folder.
    pub config: RunConfig,
    /// Where it lies.
    pub recipe: PathBuf,
    /// Path or address of the checkpoint of step 0.
    pub checkpoint: String,
    /// Tensors.
    pub tensors: usize,
    /// Parameters in them.
    pub parameters: u64,
}

/// Makes a run of the weights in a folder: its recipe, and a checkpoint before the first step, from
/// which `train run --resume` goes on. Moments and pending balance are as before any first step; the
/// router biases are those of the folder until the first step has balanced.
///
/// # Errors
/// What is wrong with the folder ([`Folder::open`]), a recipe that contradicts it, a run's folder
/// that holds something, data that cannot be read.
pub fn import(options: &ImportOptions) -> Result<Imported, TrainError> {
    let folder = Folder::open(&options.folder)?;
    refuse_to_overwrite(&options.out)?;
    let config = match &options.recipe {
        Some(path) => recipe::load(path, &options.set)?,
        None => made_recipe(&folder, options)?,
    };
    agrees(&folder, &config, options)?;
    // Read where it lies: nothing is written before all that is read was found sound.
    let mut readable = config.clone();
    let own_tokenizer = options.out.join(TOKENIZER);
    let takes_tokenizer = config.data.tokenizer.as_ref() == Some(&own_tokenizer);
    if takes_tokenizer {
        readable.data.tokenizer = folder.tokenizer_path();
    }
    same_tokenizer(&folder, &assemble::tokenizer(&config.model, &readable.data)?)?;
    let data = assemble::data(&readable)?;
    let world = World::solo();
    let device = device::open(DeviceChoice::Cpu)?.device;
    let mut state = TrainState::new(&config, &world, &device)?;
    let husk = fulmar_model::weights::emptied(&state.model);
    let fresh = std::mem::replace(&mut state.model, husk);
    state.model = filled(fresh, &folder, 0..config.model.num_experts)?;
    std::fs::create_dir_all(&options.out).map_err(TrainError::io("create", &options.out))?;
    if let Some(tokenizer) = folder.tokenizer_path().filter(|_| takes_tokenizer) {
        std::fs::copy(tokenizer, &own_tokenizer)
            .map_err(TrainError::io("write", &own_tokenizer))?;
    }
    let recipe = options.out.join(checkpoint::RECIPE);
    std::fs::write(&recipe, recipe::to_toml(&config)).map_err(TrainError::io("write", &recipe))?;
    let storage = open_storage(&config, &options.out)?;
    let run = checkpoint::Run {
        consumed: data.consumed(0),
        ..checkpoint::Run::new(&storage, &config, &data.digest)
    };
    let checkpoint = checkpoint::save(&run, &state, &world)?.place;
    let event = Event::now(0, 0, "imported", format!("weights of {}", folder.path().display()));
    History::open(&options.out)?.append(&event)?;
    Ok(Imported {
        recipe,
        checkpoint,
        tensors: Names::of(&config.model).iter().count(),
        parameters: config.model.num_params(),
        config,
    })
}

/// A recipe with the folder's model and tokenizer, and what the flags say.
fn made_recipe(folder: &Folder, options: &ImportOptions) -> Result<RunConfig, TrainError> {
    let required = |flag: &str, value: Option<u64>| {
        let rule = "a number, or a whole recipe by --recipe";
        value.ok_or_else(|| TrainError::config(flag, "absent", rule))
    };
    let (rows, steps) = (required("--rows", options.rows)?, required("--steps", options.steps)?);
    let name = options.out.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
    let table = |fields: &[(&str, Value)]| -> Value {
        fields
            .iter()
            .map(|(field, value)| ((*field).to_owned(), value.clone()))
            .collect::<Table>()
            .into()
    };
    let number = |value: u64| Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    let mut recipe = Table::new();
    recipe.insert("name".to_owned(), name.into());
    let model = Table::try_from(folder.model()).expect("a config of plain values");
    recipe.insert("model".to_owned(), model.into());
    recipe.insert("batch".to_owned(), table(&[("rows", number(rows))]));
    recipe.insert("schedule".to_owned(), table(&[("steps", number(steps))]));
    if folder.tokenizer_path().is_some() {
        let path = options.out.join(TOKENIZER).display().to_string();
        recipe.insert("data".to_owned(), table(&[("tokenizer", path.into())]));
    }
    let text = toml::to_string(&recipe).expect("a table of plain values");
    recipe::parse(&text, &format!("recipe of {}", folder.path().display()), &options.set)
}

fn agrees(folder: &Folder, config: &RunConfig, options: &ImportOptions) -> Result<(), TrainError> {
    let described: &ModelConfig = folder.model();
    let Some((field, found, needed)) = first_contradiction(&config.model, described) else {
        return Ok(());
    };
    let recipe = options.recipe.as_deref().unwrap_or(Path::new("--set"));
    let problem = format!("field `{field}` is {found} in {} and {needed} here", recipe.display());
    Err(TrainError::interchange(folder.path(), problem))
}

/// Ids mean what they meant where the weights come from, if that can be told.
fn same_tokenizer(folder: &Folder, used: &fulmar_data::Tokenizer) -> Result<(), TrainError> {
    let Some(path) = folder.tokenizer_path() else { return Ok(()) };
    let (found, needed) = (used.digest().to_owned(), folder.tokenizer()?.digest().to_owned());
    if found == needed {
        return Ok(());
    }
    let problem = format!("digest {needed}, the run's tokenizer has {found}; set `data.tokenizer`");
    Err(TrainError::interchange(&path, problem))
}

fn refuse_to_overwrite(out: &Path) -> Result<(), TrainError> {
    let holds = [checkpoint::RECIPE.to_owned(), LOG_FILE.to_owned()];
    let held = holds.iter().map(|name| out.join(name)).chain([checkpoint::folder(out)]);
    match held.into_iter().find(|path| path.exists()) {
        Some(path) => {
            let problem = format!("the folder holds a run ({}); choose another", path.display());
            Err(TrainError::checkpoint(out, problem))
        }
        None => Ok(()),
    }
}
