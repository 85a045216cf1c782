//! One process at a time trains a run or changes its plan.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::error::TrainError;

/// Name of the locked file in a run's folder; it is empty, and stays.
const LOCK_FILE: &str = "lock";

/// Held while a process trains a run or changes its plan. The system lets it go with the process,
/// however that ends.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: Option<File>,
}

impl RunLock {
    /// Whether a process trains or changes the run in `folder` right now; nothing is made.
    pub(crate) fn is_held(folder: &Path) -> bool {
        let Ok(file) = File::open(folder.join(LOCK_FILE)) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Takes the lock of the run in `folder`, which is made if it is not there. A file system that
    /// knows no locks gives it to everybody.
    ///
    /// # Errors
    /// [`TrainError::Config`] if another process holds it; if the file cannot be made.
    pub(crate) fn take(folder: &Path) -> Result<Self, TrainError> {
        std::fs::create_dir_all(folder).map_err(TrainError::io("create", folder))?;
        let path = folder.join(LOCK_FILE);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(TrainError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => {
                let rule = "the folder of a run that no other process trains or changes right now";
                Err(TrainError::config("RUN", folder.display(), rule))
            }
            Err(TryLockError::Error(_)) => Ok(Self { _file: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_of_one_at_a_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = folder.path().join("run");
        let held = RunLock::take(&run).expect("nobody has it");
        let error = RunLock::take(&run).expect_err("somebody has it").to_string();
        assert!(
            error.contains("/run, needed the folder of a run that no other process"),
            "{error}"
        );
        drop(held);
        RunLock::take(&run).expect("nobody has it any more");
    }
}
