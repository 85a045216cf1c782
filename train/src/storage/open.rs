//! The storage of a run.

use std::path::Path;
use std::sync::Arc;

use super::{LocalStorage, Storage};
use crate::config::RunConfig;
use crate::error::TrainError;

/// Opens the place where the checkpoints of a run lie: `checkpoint.target`, or `checkpoints` in the
/// run's folder.
///
/// # Errors
/// If there is no such kind of place.
pub fn open_storage(config: &RunConfig, run_folder: &Path) -> Result<Arc<dyn Storage>, TrainError> {
    let root = match &config.checkpoint.target {
        Some(target) => target.into(),
        None => run_folder.join("checkpoints"),
    };
    Ok(Arc::new(LocalStorage::new(root)))
}
