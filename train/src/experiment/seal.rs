//! The seal: digests of what was written before.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::protocol::{PROTOCOL_FILE, Protocol};
use super::readme::{README_FILE, render};
use crate::error::TrainError;
use crate::recipe;

/// Name of the seal in an experiment's folder.
pub const SEAL_FILE: &str = "seal.json";
/// Folder of the runs' recipes in an experiment's folder.
pub const RECIPES: &str = "recipes";

/// Digests (BLAKE3, hexadecimal) of the files that are not to be changed any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// Seconds since 1970 by this machine's clock; for people.
    pub sealed_unix_secs: u64,
    /// Release of the program.
    pub release: String,
    /// Digest by file, relative to the experiment's folder.
    pub files: BTreeMap<String, String>,
    /// Digest of all of the above.
    pub digest: String,
}

impl Seal {
    /// The seal of the experiment in `folder`, if it is sealed and nothing was changed since.
    ///
    /// # Errors
    /// If there is none, or a file is missing or another; names the first.
    pub fn checked(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(SEAL_FILE);
        if !path.exists() {
            let problem = "there is no seal; write the protocol and `train experiment seal` it";
            return Err(TrainError::experiment(folder, problem));
        }
        let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        let seal: Self = serde_json::from_str(&text)
            .map_err(|error| TrainError::experiment(&path, error.to_string()))?;
        let found = digest_without(&text, &seal.digest);
        if found != seal.digest {
            return Err(altered(&path, &found, &seal.digest));
        }
        for (file, needed) in &seal.files {
            let path = folder.join(file);
            let found = digest_of_file(&path, u64::MAX)?;
            if found != *needed {
                return Err(altered(&path, &found, needed));
            }
        }
        Ok(seal)
    }
}

/// Completes the experiment in `folder`: its recipes, its seal, its page.
///
/// # Errors
/// If it is sealed already, or its protocol is not complete; nothing is written then.
pub fn seal(folder: &Path) -> Result<Seal, TrainError> {
    if folder.join(SEAL_FILE).exists() {
        let problem = "it is sealed already; another plan is another experiment";
        return Err(TrainError::experiment(folder, problem));
    }
    let protocol = Protocol::read(folder)?;
    protocol.validate()?;
    let configs: Vec<_> =
        protocol.runs.iter().map(|run| run.config(folder)).collect::<Result<_, _>>()?;
    let mut files = vec![PROTOCOL_FILE.to_owned()];
    if !configs.is_empty() {
        let recipes = folder.join(RECIPES);
        std::fs::create_dir_all(&recipes).map_err(TrainError::io("create", &recipes))?;
    }
    for config in &configs {
        let file = recipe_file(&config.name);
        write(&folder.join(&file), &recipe::to_toml(config))?;
        files.push(file);
    }
    let digests = files
        .into_iter()
        .map(|file| Ok((file.clone(), digest_of_file(&folder.join(file), u64::MAX)?)));
    let mut seal = Seal {
        sealed_unix_secs: now(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        files: digests.collect::<Result<_, TrainError>>()?,
        digest: String::new(),
    };
    seal.digest = digest_without(&as_json(&seal), "");
    write(&folder.join(SEAL_FILE), &as_json(&seal))?;
    write(&folder.join(README_FILE), &render(&protocol, &seal, None))?;
    Ok(seal)
}

/// The recipe of a run in an experiment's folder.
pub(super) fn recipe_file(run: &str) -> String {
    format!("{RECIPES}/{run}.toml")
}

/// The digest of a record that holds it: of its text without it.
pub(super) fn digest_without(text: &str, digest: &str) -> String {
    blake3::hash(text.replace(digest, "").as_bytes()).to_hex().to_string()
}

/// The digest of a file's first bytes, or of all that it has.
pub(super) fn digest_of_file(path: &Path, bytes: u64) -> Result<String, TrainError> {
    let mut hasher = blake3::Hasher::new();
    let read =
        std::fs::File::open(path).and_then(|file| hasher.update_reader(file.take(bytes)).map(drop));
    read.map_err(TrainError::io("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// A record on more than one line, for people and for versions.
pub(super) fn as_json<T: Serialize>(plain: &T) -> String {
    serde_json::to_string_pretty(plain).expect("plain values") + "\n"
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), TrainError> {
    std::fs::write(path, text).map_err(TrainError::io("write", path))
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) fn altered(path: &Path, found: &str, needed: &str) -> TrainError {
    let problem = format!("it was altered: its digest is {found:.12}, the record has {needed:.12}");
    TrainError::experiment(path, problem)
}
