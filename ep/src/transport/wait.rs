use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TransportError;
use super::mesh::Call;

/// Why a rank is lost that ended well while another still needed it.
pub(super) const HAS_ENDED: &str = "it has ended";

/// A collective that a rank waits for, and how its end without success is told.
pub(super) struct Wait {
    /// This rank in the world.
    pub(super) rank: usize,
    /// World ranks of the group.
    pub(super) members: Arc<[usize]>,
    pub(super) call: Call,
    pub(super) sequence: u64,
    /// How many words come from each member.
    pub(super) words: Vec<usize>,
    pub(super) started: Instant,
}

impl Wait {
    /// How long may still be waited, if at all.
    pub(super) fn left(&self, deadline: Duration) -> Option<Duration> {
        deadline.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero())
    }

    pub(super) fn late(&self, missing: Vec<usize>) -> TransportError {
        TransportError::Deadline {
            rank: self.rank,
            call: self.call.to_string(),
            sequence: self.sequence,
            missing,
            members: self.members.to_vec(),
            waited: self.started.elapsed(),
        }
    }

    /// `peer` is a world rank, as in [`lost`](Self::lost).
    pub(super) fn mismatch(
        &self,
        peer: usize,
        (call, words): (impl Display, usize),
        needed: usize,
    ) -> TransportError {
        TransportError::Mismatch {
            rank: self.rank,
            peer,
            call: self.call.to_string(),
            sequence: self.sequence,
            found: format!("{call} with {words} words"),
            needed: format!("{} with {needed} words", self.call),
        }
    }

    pub(super) fn lost(&self, peer: usize, cause: String) -> TransportError {
        TransportError::PeerLost {
            rank: self.rank,
            peer,
            call: self.call.to_string(),
            sequence: self.sequence,
            cause,
        }
    }
}
