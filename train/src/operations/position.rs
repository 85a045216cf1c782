//! Where a run stands: what its checkpoints say.

use std::path::Path;

use super::Position;
use crate::checkpoint::{self, Manifest};
use crate::config::RunConfig;
use crate::error::TrainError;

/// The position of the checkpoint after `step` updates, of the newest whole one when absent; the
/// start of a run that has none.
///
/// # Errors
/// If there is no such checkpoint, or none can be looked for.
pub fn position(
    _config: &RunConfig,
    folder: &Path,
    step: Option<u64>,
) -> Result<Position, TrainError> {
    let of = |manifest: &Manifest| Position { step: manifest.step, batches: manifest.batches };
    match step {
        None => {
            let found = checkpoint::newest(folder)?;
            Ok(found.newest.map_or_else(Position::default, |(_, manifest)| of(&manifest)))
        }
        Some(step) => Ok(of(&Manifest::read(&checkpoint::step_folder(folder, step))?)),
    }
}
