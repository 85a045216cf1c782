//! What ranks tell each other between two steps, so that all do the same next.

use fulmar_ep::transport::{Group, TransportError};

use super::TrainingLoop;
use crate::error::TrainError;

/// What one rank has to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tidings {
    /// It was asked to stop.
    pub(super) stop: bool,
    /// Its clock says that a save is due; that of the first rank counts.
    pub(super) save_due: bool,
    /// How far its part of a save in the background is.
    pub(super) saving: Saving,
}

/// How far a rank's part of a save is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Saving {
    /// No save is under way.
    #[default]
    Idle,
    /// It is being written.
    Writing,
    /// It is written, or could not be.
    Ended,
}

impl TrainingLoop<'_> {
    /// What every rank has to say after this step, by rank.
    pub(super) fn tidings(&mut self) -> Result<Vec<Tidings>, TrainError> {
        let own = Tidings {
            stop: self.options.stop.is_raised(),
            save_due: self.saver.due_by_clock(),
            saving: self.saver.progress(),
        };
        Ok(own.of_all(&self.world.all)?)
    }
}

impl Tidings {
    /// Everybody's, by rank; one small collective.
    ///
    /// # Errors
    /// If a peer is lost.
    pub(super) fn of_all(self, ranks: &Group) -> Result<Vec<Self>, TransportError> {
        let own = [u64::from(self.stop), u64::from(self.save_due), self.saving as u64];
        let all = ranks.gather_u64("between steps", &own)?;
        Ok(all.iter().map(|of_rank| Self::from_numbers(of_rank)).collect())
    }

    fn from_numbers(numbers: &[u64]) -> Self {
        let known = [Saving::Idle, Saving::Writing, Saving::Ended];
        Self { stop: numbers[0] > 0, save_due: numbers[1] > 0, saving: known[numbers[2] as usize] }
    }
}
