//! Other weights of cells from a later block on.

use fulmar_data::Stage;

use super::{Operation, Position};
use crate::config::RunConfig;
use crate::error::TrainError;

/// Puts `new` stages in the place of those that have not begun at `at`; `current` are all stages so
/// far.
///
/// # Errors
/// If a new stage would begin in the past, or the stages together break a rule.
pub fn change_mixture(
    config: &RunConfig,
    current: &[Stage],
    at: Position,
    new: Vec<Stage>,
) -> Result<Operation, TrainError> {
    let next = (at.batches * config.batch.rows).div_ceil(config.data.block_rows);
    let Some(first) = new.first() else {
        return Err(TrainError::config("--mixture", "no stage", "at least one"));
    };
    if first.from_block < next {
        let rule = format!("at least {next}, the first block that is not begun");
        return Err(TrainError::config("stages[0].from_block", first.from_block, rule));
    }
    let mut stages: Vec<Stage> =
        current.iter().filter(|stage| stage.from_block < next).cloned().collect();
    // A stage that begins where the run stands has given no row; only the first one must stay.
    if stages.is_empty() && first.from_block > 0 {
        stages.extend(current.first().cloned());
    }
    stages.extend(new);
    Ok(Operation::Mixture { stages })
}

/// The stages of a TOML file: `[[stages]]` with `from_block` and `weights`.
///
/// # Errors
/// If the file cannot be read or holds anything else.
pub fn read_stages(path: &std::path::Path) -> Result<Vec<Stage>, TrainError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        stages: Vec<Stage>,
    }
    let text = std::fs::read_to_string(path).map_err(TrainError::io("read mixture", path))?;
    let file: File = crate::recipe::from_toml(&text, &path.display().to_string())?;
    Ok(file.stages)
}
