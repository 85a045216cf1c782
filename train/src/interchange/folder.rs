//! A folder in the published layout, checked whole before any weight is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use fulmar_data::Tokenizer;
use fulmar_model::ModelConfig;
use safetensors::Dtype;
use serde::Deserialize;

use super::names::GATED_NORM_RANK;
use super::tensor_file::TensorFile;
use super::turn::turned;
use super::{CONFIG, Exchanged, INDEX, Names, SINGLE, TOKENIZER, Weights, from_json};
use crate::error::TrainError;

/// Names of a kind of problem that a message lists; the rest are counted.
const LISTED: usize = 5;

/// A folder whose names, shapes and types are those of its model.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    model: ModelConfig,
    files: Files,
}

/// The files of weights, and which tensor is where.
#[derive(Debug)]
struct Files {
    files: Vec<TensorFile>,
    place: BTreeMap<String, usize>,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    metadata: IndexMetadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct IndexMetadata {
    total_size: u64,
}

impl Folder {
    /// Whether a folder may be one in the published layout.
    pub fn is_one(path: &Path) -> bool {
        path.join(CONFIG).exists()
    }

    /// Opens a folder and checks everything but the values.
    ///
    /// # Errors
    /// [`TrainError::Interchange`] with the file and what is wrong with it: a file that is missing,
    /// cut short or not named in the index, a field of `config.json`, tensors that are missing, left
    /// over or of another shape or type.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let config = path.join(CONFIG);
        let text = std::fs::read_to_string(&config).map_err(TrainError::io("read", &config))?;
        Self::described(path, &text)
    }

    /// As [`open`](Self::open), with the text of a `config.json` that is not there yet.
    pub(super) fn described(path: &Path, text: &str) -> Result<Self, TrainError> {
        let config = path.join(CONFIG);
        let files = Files::open(path)?;
        let rank = files.info(GATED_NORM_RANK).and_then(|info| info.shape.first()).copied();
        let rank = rank.ok_or_else(|| {
            let problem = format!("`{GATED_NORM_RANK}` [rank, hidden] is missing");
            TrainError::interchange(path, problem)
        })?;
        let model = from_json(text, &config, rank)?;
        // Before a table of their names is made: a number may be anything.
        let tensors = files.place.len();
        for (field, count) in [
            ("num_hidden_layers", model.num_layers),
            ("num_shared_experts", model.num_shared_experts),
        ] {
            if count > tensors {
                let problem = format!("field `{field}` is {count}, for {tensors} tensors in all");
                return Err(TrainError::interchange(&config, problem));
            }
        }
        files.check(path, &Names::of(&model))?;
        Ok(Self { path: path.to_owned(), model, files })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Files of weights.
    pub fn num_files(&self) -> usize {
        self.files.files.len()
    }

    /// Where its `tokenizer.json` lies, if it has one.
    pub fn tokenizer_path(&self) -> Option<PathBuf> {
        Some(self.path.join(TOKENIZER)).filter(|path| path.exists())
    }

    /// Its tokenizer.
    ///
    /// # Errors
    /// If it has none, or one that cannot be used.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        let path = self.tokenizer_path().ok_or_else(|| {
            TrainError::interchange(&self.path, format!("`{TOKENIZER}` is missing"))
        })?;
        Ok(Tokenizer::from_file(path)?)
    }
}

impl Weights for Folder {
    fn model(&self) -> &ModelConfig {
        &self.model
    }

    fn read(&self, parameter: &Exchanged) -> Result<TensorData, TrainError> {
        let data = self.files.read(&parameter.name)?;
        if !parameter.is_turned() {
            return Ok(data);
        }
        let values = data.as_slice::<f32>().expect("files are read as f32");
        let shape = parameter.shape_there();
        let [.., rows, columns] = shape[..] else { unreachable!("matrices have two sides") };
        Ok(TensorData::new(turned(values, [rows, columns]), parameter.shape.clone()))
    }
}

impl Files {
    fn open(folder: &Path) -> Result<Self, TrainError> {
        let index = folder.join(INDEX);
        let single = folder.join(SINGLE);
        match (index.exists(), single.exists()) {
            (true, true) => {
                let problem = format!("there are both `{SINGLE}` and `{INDEX}`, needed one");
                Err(TrainError::interchange(folder, problem))
            }
            (true, false) => Self::indexed(folder, &index),
            (false, true) => Ok(Self::of(vec![TensorFile::open(&single)?])),
            (false, false) => {
                let problem = format!("there is neither `{SINGLE}` nor `{INDEX}`");
                Err(TrainError::interchange(folder, problem))
            }
        }
    }

    fn of(files: Vec<TensorFile>) -> Self {
        let mut place = BTreeMap::new();
        for (index, file) in files.iter().enumerate() {
            place.extend(file.names().into_iter().map(|name| (name, index)));
        }
        Self { files, place }
    }

    /// The files that an index names; what it says of them must be so.
    fn indexed(folder: &Path, path: &Path) -> Result<Self, TrainError> {
        let refused = |problem: String| TrainError::interchange(path, problem);
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
        let index: Index = serde_json::from_str(&text)
            .map_err(|error| refused(format!("cannot be read ({error})")))?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        if let Some(name) = names.iter().find(|name| name.contains(['/', '\\'])) {
            return Err(refused(format!("names the file `{name}`, needed one beside it")));
        }
        let files = names.iter().map(|name| TensorFile::open(&folder.join(name)));
        let files: Vec<TensorFile> = files.collect::<Result<_, _>>()?;
        for (file, file_name) in files.iter().zip(&names) {
            for tensor in file.names() {
                match index.weight_map.get(&tensor) {
                    Some(named) if named == *file_name => {}
                    Some(named) => {
                        return Err(refused(format!(
                            "`{tensor}` is in `{file_name}`, the index says `{named}`"
                        )));
                    }
                    None => {
                        let problem = format!("`{tensor}` of `{file_name}` is not in the index");
                        return Err(refused(problem));
                    }
                }
            }
        }
        let all = Self::of(files);
        let lost = index.weight_map.iter().find(|(tensor, _)| !all.place.contains_key(*tensor));
        if let Some((tensor, file)) = lost {
            return Err(refused(format!("`{tensor}` is not in `{file}`, where the index says")));
        }
        let (found, needed) = (index.metadata.total_size, all.data_bytes());
        if found != needed {
            return Err(refused(format!("`total_size` is {found}, needed {needed}")));
        }
        Ok(all)
    }

    fn data_bytes(&self) -> u64 {
        self.files.iter().map(TensorFile::data_bytes).sum()
    }

    fn info(&self, name: &str) -> Option<&safetensors::tensor::TensorInfo> {
        self.place.get(name).and_then(|index| self.files[*index].info(name))
    }

    fn read(&self, name: &str) -> Result<TensorData, TrainError> {
        // Every name was found when the folder was opened.
        self.files[self.place[name]].read(name)
    }

    /// Every tensor of the model and no other, each of its shape and a type that weights have.
    fn check(&self, folder: &Path, names: &Names) -> Result<(), TrainError> {
        let refused = |problem: String| TrainError::interchange(folder, problem);
        let missing = names.iter().filter(|entry| !self.place.contains_key(&entry.name));
        let missing: Vec<&str> = missing.map(|entry| entry.name.as_str()).collect();
        if !missing.is_empty() {
            return Err(refused(format!("{} missing", listed(&missing))));
        }
        let extra = self.place.keys().filter(|name| names.of_name(name).is_none());
        let extra: Vec<&str> = extra.map(String::as_str).collect();
        if !extra.is_empty() {
            return Err(refused(format!("{} no part of the model", listed(&extra))));
        }
        for entry in names.iter() {
            let Some(info) = self.info(&entry.name) else { continue };
            let file = self.files[self.place[&entry.name]].path();
            let refused = |problem: String| {
                Err(TrainError::interchange(file, format!("`{}` {problem}", entry.name)))
            };
            let needed = entry.shape_there();
            if info.shape != needed {
                return refused(format!("has shape {:?}, needed {needed:?}", info.shape));
            }
            if !matches!(info.dtype, Dtype::F32 | Dtype::BF16) {
                return refused(format!("is {:?}, needed F32 or BF16", info.dtype));
            }
        }
        Ok(())
    }
}

/// The first few names with a verb, and how many more there are.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(LISTED).map(|name| format!("`{name}`"));
    let mut text = first.collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text += &format!(" and {} more", names.len() - LISTED);
    }
    text + if names.len() == 1 { " is" } else { " are" }
}
