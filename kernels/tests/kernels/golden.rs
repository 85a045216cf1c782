//! Golden optimizer cases: tensors and the settings in their file's metadata.

use std::path::{Path, PathBuf};

use burn::tensor::{Tensor, TensorData};
use safetensors::SafeTensors;

use crate::compare::device;

/// One file of golden values.
pub(crate) struct Case {
    bytes: Vec<u8>,
}

impl Case {
    /// A setting of the file's own metadata.
    pub(crate) fn setting(&self, name: &str) -> f64 {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).expect("a safetensors header");
        let settings = header.metadata().as_ref().expect("settings in the metadata");
        settings.get(name).unwrap_or_else(|| panic!("setting {name}")).parse().expect("a number")
    }

    /// A tensor by name, reshaped to `D` dimensions by leading ones.
    pub(crate) fn tensor<const D: usize>(&self, name: &str) -> Tensor<D> {
        let file = SafeTensors::deserialize(&self.bytes).expect("a safetensors file");
        let view = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let values: Vec<f32> =
            view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let mut shape = [1; D];
        let skip = D - view.shape().len();
        shape[skip..].copy_from_slice(view.shape());
        Tensor::from_data(TensorData::new(values, shape), &device())
    }
}

/// The optimizer cases: the project's own, or those of the folder `FULMAR_GOLDEN_DIR` and its
/// direct subfolders.
pub(crate) fn optimizer_cases() -> Vec<Case> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/optimizer.safetensors");
    let files = match std::env::var_os("FULMAR_GOLDEN_DIR") {
        None => vec![PathBuf::from(own)],
        Some(folder) => cases_below(Path::new(&folder)),
    };
    if files.is_empty() {
        eprintln!("skipped: no optimizer case");
    }
    let read = |file: PathBuf| {
        std::fs::read(&file).unwrap_or_else(|e| panic!("reading {}: {e}", file.display()))
    };
    files.into_iter().map(|file| Case { bytes: read(file) }).collect()
}

fn cases_below(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(folder)
            .unwrap_or_else(|e| panic!("listing {}: {e}", folder.display()));
        listed.map(|entry| entry.expect("a folder entry").path()).collect()
    };
    let mut files = entries(folder);
    for subfolder in files.clone().iter().filter(|path| path.is_dir()) {
        files.extend(entries(subfolder));
    }
    files.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.is_file() && name.starts_with("optimizer") && name.ends_with(".safetensors")
    });
    files.sort();
    files
}
