//! The folder of a build in progress, `.<name>.partial` beside the store's place: one process at a
//! time works in it, and finds there what an earlier one has done.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::part::Part;
use crate::{
    DataError, Result,
    store::{parent_of, write_synced},
};

/// Version of the files in the folder.
const WORK_VERSION: u32 = 1;

/// The folder, locked.
pub(super) struct WorkFolder {
    path: PathBuf,
    /// Held until the end; the system lets go of it when the process dies.
    _lock: File,
}

/// What the parts are parts of.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Subject {
    version: u32,
    build_digest: String,
}

impl WorkFolder {
    /// Whether there is such a folder for a store at `out_dir`.
    pub(super) fn is_beside(out_dir: &Path) -> bool {
        out_dir.with_file_name(name_of(out_dir)).exists()
    }

    /// Makes the folder for a store at `out_dir`, or waits for the one that works in it.
    pub(super) fn lock(out_dir: &Path) -> Result<Self> {
        let parent = parent_of(out_dir)?;
        let path = parent.join(name_of(out_dir));
        loop {
            fs::create_dir_all(&path).map_err(DataError::io("create folder", path.as_path()))?;
            let lock_path = path.join("lock");
            // Its last user may have removed the folder, between our looks.
            let file = match File::create(&lock_path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                file => file.map_err(DataError::io("create", lock_path.as_path()))?,
            };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    tracing::info!(path = %path.display(), "waiting for another build");
                    file.lock().map_err(DataError::io("lock", lock_path.as_path()))?;
                }
                Err(TryLockError::Error(error)) => {
                    return Err(DataError::io("lock", lock_path)(error));
                }
                Ok(()) => {}
            }
            if is_same(&file, &lock_path) {
                return Ok(Self { path, _lock: file });
            }
        }
    }

    /// The parts that are whole, of a build of this digest; what else lies here is removed. Parts of
    /// another build are an error unless `fresh`.
    pub(super) fn take_over(&self, build_digest: &str, fresh: bool) -> Result<Vec<Part>> {
        let subject = Subject { version: WORK_VERSION, build_digest: build_digest.to_owned() };
        let path = self.path.join("build.json");
        let found = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let parts = self.whole_parts();
        if !parts.is_empty() && found.as_ref() != Some(&subject) && !fresh {
            return Err(DataError::OtherBuild { path: self.path.clone(), parts: parts.len() });
        }
        let keep = !fresh && found.as_ref() == Some(&subject);
        let parts = if keep { parts } else { Vec::new() };
        remove(&self.staging())?;
        if parts.is_empty() {
            remove(&self.parts())?;
        }
        let folder = self.parts();
        fs::create_dir_all(&folder).map_err(DataError::io("create folder", folder))?;
        // Numbers and strings always have a JSON form.
        write_synced(&path, &serde_json::to_vec(&subject).expect("a subject as JSON"))?;
        Ok(parts)
    }

    fn whole_parts(&self) -> Vec<Part> {
        (0..).map_while(|number| Part::open(&self.parts(), number)).collect()
    }

    /// Where the parts lie.
    pub(super) fn parts(&self) -> PathBuf {
        self.path.join("parts")
    }

    /// Where the store is put together.
    pub(super) fn staging(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Removes all of it. It is moved away first, in one step: whoever waits for the lock makes a folder
    /// and a lock of their own, and must not make them in one that is half gone.
    pub(super) fn remove(self) -> Result<()> {
        let refused = || DataError::io("remove", self.path.as_path());
        let parent = self.path.parent().unwrap_or(Path::new("."));
        let gone = tempfile::Builder::new().prefix(".gone-").tempdir_in(parent);
        let gone = gone.map_err(refused())?;
        fs::rename(&self.path, gone.path().join("partial")).map_err(refused())?;
        gone.close().map_err(refused())
    }
}

fn name_of(out_dir: &Path) -> String {
    format!(".{}.partial", out_dir.file_name().unwrap_or_default().to_string_lossy())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DataError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Whether the file that was opened is still the one at the path.
#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(opened), Ok(there)) => place(opened) == place(there),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same(_file: &File, path: &Path) -> bool {
    path.exists()
}
