//! Where a run stands: what its checkpoints say.

use std::path::Path;

use super::Position;
use crate::checkpoint::{self, Manifest};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::storage::open_storage;

/// The position of the checkpoint after `step` updates, of the newest whole one when absent; the
/// start of a run that has none.
///
/// # Errors
/// If there is no such checkpoint, or none can be looked for.
pub fn position(
    config: &RunConfig,
    folder: &Path,
    step: Option<u64>,
) -> Result<Position, TrainError> {
    let storage = open_storage(config, folder)?;
    match step {
        None => {
            let newest = checkpoint::newest(&*storage, None)?.newest;
            Ok(newest.map_or_else(Position::default, |manifest| manifest.position()))
        }
        Some(step) => Ok(Manifest::read(&*storage, step)?.position()),
    }
}
