//! Where every assignment went.

use serde::{Deserialize, Serialize};

use crate::error::EpError;

/// The fate of the assignments of one layer, over any number of tokens.
///
/// `assignments = padding + valid` and `valid = kept + sender_dropped + receiver_dropped`, always.
/// Counts are u64: a layer of the hero run makes 369,098,752 assignments a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchCounts {
    /// Tokens times experts per token.
    pub assignments: u64,
    /// Assignments of padding tokens; they take no capacity and are not drops.
    pub padding: u64,
    /// Assignments of real tokens.
    pub valid: u64,
    /// Valid assignments that reached their expert.
    pub kept: u64,
    /// Valid assignments that the sending shard had no room for.
    pub sender_dropped: u64,
    /// Valid assignments that the receiving shard had no room for.
    pub receiver_dropped: u64,
}

impl DispatchCounts {
    /// Confirms that nothing was lost.
    ///
    /// # Errors
    /// [`EpError::CountIdentity`] with the counts that do not add up.
    pub fn check(self) -> Result<Self, EpError> {
        let placed = self.kept + self.sender_dropped + self.receiver_dropped;
        if self.assignments == self.padding + self.valid && self.valid == placed {
            Ok(self)
        } else {
            Err(EpError::CountIdentity(self))
        }
    }

    /// The counts in the order of the fields, for a collective.
    pub fn to_array(self) -> [u64; 6] {
        let Self { assignments, padding, valid, kept, sender_dropped, receiver_dropped } = self;
        [assignments, padding, valid, kept, sender_dropped, receiver_dropped]
    }

    /// The counts that [`to_array`](Self::to_array) gave.
    pub fn from_array(counts: [u64; 6]) -> Self {
        let [assignments, padding, valid, kept, sender_dropped, receiver_dropped] = counts;
        Self { assignments, padding, valid, kept, sender_dropped, receiver_dropped }
    }

    /// Dropped share of the valid assignments, 0 without any.
    pub fn drop_fraction(&self) -> f64 {
        fraction(self.sender_dropped + self.receiver_dropped, self.valid)
    }

    /// Share of the valid assignments that senders dropped, 0 without any.
    pub fn sender_drop_fraction(&self) -> f64 {
        fraction(self.sender_dropped, self.valid)
    }

    /// Share of the valid assignments that receivers dropped, 0 without any.
    pub fn receiver_drop_fraction(&self) -> f64 {
        fraction(self.receiver_dropped, self.valid)
    }

    /// Share of the assignments that reached a receiver which receivers dropped, 0 without any.
    pub fn receiver_drop_fraction_of_received(&self) -> f64 {
        fraction(self.receiver_dropped, self.kept + self.receiver_dropped)
    }
}

fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl std::ops::AddAssign for DispatchCounts {
    fn add_assign(&mut self, other: Self) {
        self.assignments += other.assignments;
        self.padding += other.padding;
        self.valid += other.valid;
        self.kept += other.kept;
        self.sender_dropped += other.sender_dropped;
        self.receiver_dropped += other.receiver_dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_lose_an_assignment_are_refused() {
        let whole = DispatchCounts {
            assignments: 12,
            padding: 4,
            valid: 8,
            kept: 5,
            sender_dropped: 1,
            receiver_dropped: 2,
        };
        assert_eq!(whole.check(), Ok(whole));
        assert_eq!(whole.drop_fraction(), 3.0 / 8.0);
        let lossy = DispatchCounts { kept: 4, ..whole };
        assert_eq!(lossy.check(), Err(EpError::CountIdentity(lossy)));
    }

    #[test]
    fn a_batch_of_padding_drops_nothing() {
        let padding = DispatchCounts { assignments: 6, padding: 6, ..Default::default() };
        assert_eq!(padding.check(), Ok(padding));
        assert_eq!(padding.drop_fraction(), 0.0);
    }
}
