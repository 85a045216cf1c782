//! Golden cases: safetensors files that a public implementation wrote.
//!
//! They lie in `tests/golden` with their README. `FULMAR_GOLDEN_DIR` names another folder; every
//! case found there, or in a folder directly below it, is run with the settings in its metadata.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

/// One golden file.
#[derive(Debug, Clone)]
pub struct GoldenFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its settings.
    pub metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, (Vec<usize>, Values)>,
}

#[derive(Debug, Clone)]
enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl GoldenFile {
    /// Reads a file.
    ///
    /// # Panics
    /// If it cannot be read: a golden file is part of the test.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let whole = |bytes| -> Result<_, safetensors::SafeTensorError> {
            Ok((SafeTensors::read_metadata(bytes)?.1, SafeTensors::deserialize(bytes)?))
        };
        let (header, tensors) = whole(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
        let tensors = tensors.iter().map(|(name, view)| {
            let values = match view.dtype() {
                Dtype::F32 => Values::F32(bytemuck::pod_collect_to_vec(view.data())),
                Dtype::I32 => Values::I32(bytemuck::pod_collect_to_vec(view.data())),
                other => panic!("{}: `{name}` is {other:?}", path.display()),
            };
            (name.to_owned(), (view.shape().to_vec(), values))
        });
        Self { path: path.to_owned(), metadata, tensors: tensors.collect() }
    }

    /// Names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    ///
    /// # Panics
    /// If the file has no such tensor.
    pub fn shape(&self, name: &str) -> &[usize] {
        &self.tensor(name).0
    }

    /// Values of an f32 tensor.
    ///
    /// # Panics
    /// If the file has no such tensor.
    pub fn floats(&self, name: &str) -> &[f32] {
        match &self.tensor(name).1 {
            Values::F32(values) => values,
            Values::I32(_) => panic!("{}: `{name}` holds integers", self.path.display()),
        }
    }

    /// Values of an i32 tensor.
    ///
    /// # Panics
    /// If the file has no such tensor.
    pub fn integers(&self, name: &str) -> &[i32] {
        match &self.tensor(name).1 {
            Values::I32(values) => values,
            Values::F32(_) => panic!("{}: `{name}` holds floats", self.path.display()),
        }
    }

    /// A setting, parsed.
    ///
    /// # Panics
    /// If the metadata lacks it or it does not parse.
    pub fn setting<T: std::str::FromStr>(&self, name: &str) -> T {
        let text = self.metadata.get(name);
        let parsed = text.and_then(|text| text.parse().ok());
        parsed.unwrap_or_else(|| panic!("{}: setting `{name}` is {text:?}", self.path.display()))
    }

    fn tensor(&self, name: &str) -> &(Vec<usize>, Values) {
        let missing = || panic!("{}: no tensor `{name}`", self.path.display());
        self.tensors.get(name).unwrap_or_else(missing)
    }
}

/// The folders that may hold cases: the golden folder and those directly below it.
///
/// # Panics
/// If the golden folder cannot be listed, or holds no golden file at all.
pub fn folders() -> Vec<PathBuf> {
    let root = std::env::var_os("FULMAR_GOLDEN_DIR").map_or_else(shipped, PathBuf::from);
    let list = std::fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let mut folders: Vec<PathBuf> =
        list.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.push(root.clone());
    folders.sort();
    let any = folders.iter().any(|folder| !files_of(folder, "").is_empty());
    assert!(any, "{} holds no golden case", root.display());
    folders
}

/// Files whose name begins with `kind`, over all [`folders`]; prints that the kind is skipped
/// where there are none.
pub fn cases(kind: &str) -> Vec<PathBuf> {
    let found: Vec<PathBuf> = folders().iter().flat_map(|folder| files_of(folder, kind)).collect();
    if found.is_empty() {
        // Written past the test harness, which swallows what passing tests print.
        let _ = writeln!(std::io::stderr(), "skipped: no golden case of kind `{kind}`");
    }
    found
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn files_of(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = list
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| name.starts_with(kind) && name.ends_with(".safetensors"))
        })
        .collect();
    files.sort();
    files
}
