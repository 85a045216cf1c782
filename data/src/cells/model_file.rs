//! Model files: a kind, a version, the model, and the digest of all that.

use std::path::Path;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{DataError, Result, whole_file};

/// Version of model files; a build reads its own version only.
pub const MODEL_VERSION: u32 = 1;

/// What a model file holds.
pub(super) trait Model: Serialize + DeserializeOwned {
    /// The name of the kind, as in the file.
    const KIND: &'static str;
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<M> {
    model_version: u32,
    kind: String,
    /// BLAKE3 of kind and `model` as compact JSON.
    blake3: String,
    model: M,
}

/// Read before all else, since another kind or version may have other fields.
#[derive(Deserialize)]
struct Head {
    model_version: u32,
    kind: String,
}

/// Digest of a model, in hex.
pub(super) fn digest<M: Model>(model: &M) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(M::KIND.as_bytes());
    hasher.update(&MODEL_VERSION.to_le_bytes());
    hasher.update(&serde_json::to_vec(model).expect("strings, numbers and lists"));
    hasher.finalize().to_hex().to_string()
}

/// Writes a model, all of it or nothing; an earlier file is replaced.
pub(super) fn write<M: Model>(path: &Path, model: &M) -> Result<()> {
    let (kind, blake3) = (M::KIND.to_owned(), digest(model));
    let file = File { model_version: MODEL_VERSION, kind, blake3, model };
    let mut bytes = serde_json::to_vec_pretty(&file).expect("strings, numbers and lists");
    bytes.push(b'\n');
    whole_file::write(path, &bytes)
}

/// Reads a model.
pub(super) fn read<M: Model>(path: &Path) -> Result<M> {
    let bad = |reason: String| DataError::ModelFile { path: path.to_owned(), reason };
    let bytes = std::fs::read(path).map_err(DataError::io("read", path))?;
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if head.kind != M::KIND {
        return Err(bad(format!("it holds `{}`, need `{}`", head.kind, M::KIND)));
    }
    if head.model_version != MODEL_VERSION {
        let found = head.model_version;
        return Err(bad(format!("version {found}, this build reads version {MODEL_VERSION}")));
    }
    let file: File<M> = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    let found = digest(&file.model);
    if found != file.blake3 {
        let needed = file.blake3;
        return Err(bad(format!("its contents have digest {found}, it says {needed}")));
    }
    Ok(file.model)
}
