//! When and how the loop saves.

use super::TrainingLoop;
use crate::checkpoint;
use crate::error::TrainError;

impl TrainingLoop<'_> {
    /// Saves the state of this step, unless it is saved already.
    pub(super) fn save(&mut self) -> Result<(), TrainError> {
        if !self.config.checkpoint.enabled {
            return Ok(());
        }
        let folder = checkpoint::step_folder(self.out, self.state.step);
        let whole = self.world.is_first()
            && checkpoint::Manifest::read(&folder)
                .and_then(|manifest| manifest.verify(&folder))
                .is_ok();
        let whole = self.world.all.sum_u64("already saved", &[u64::from(whole)])?[0] > 0;
        if !whole {
            let run = checkpoint::save::Run {
                folder: self.out,
                config: &self.config,
                data: &self.data.digest,
            };
            checkpoint::save(&run, &self.state, self.world)?;
        }
        self.saved = Some(folder);
        Ok(())
    }
}
