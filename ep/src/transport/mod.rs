//! How bytes move between ranks.
//!
//! A [`Transport`] connects the members of one group of ranks and knows six collectives. Each is
//! started, and waited for; between the two a rank is free to compute. Transports know nothing of
//! tokens or experts: they move 4-byte words.

mod buffer;
mod collectives;
mod error;
mod group;
mod launch;
mod mesh;
#[cfg(feature = "mpi")]
mod mpi;
mod reduce;
mod solo;
mod threads;
mod wait;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mpi")]
pub use self::mpi::run_mpi;
pub use buffer::{Buffer, DeviceRegion, Words};
pub use collectives::{Collective, Operation};
pub use error::TransportError;
pub use group::Group;
pub use launch::{DEFAULT_DEADLINE, RankFailure, WorldError, or_unwind, run_world};
pub use mesh::{Call, Mesh, Parts};
pub use reduce::{Element, Reduce, Reduction};
pub use solo::Solo;

/// One rank's end of the connection between the members of a group.
///
/// Every member starts the same collectives in the same order; the order is checked, by a sequence
/// number, the kind of the operation and its label, so that a rank that skips one is an error on
/// every rank and never silently mixed data. What arrives is in the order of members, and sums are
/// formed in that order, so results do not depend on timing.
pub trait Transport: Debug + Send + Sync {
    /// This rank's position among the members.
    fn rank(&self) -> usize;

    /// The number of members.
    fn size(&self) -> usize;

    /// How long a wait may last before it is an error.
    fn deadline(&self) -> Duration;

    /// Begins a collective. `label` says what for, in errors, and must agree between members.
    ///
    /// # Errors
    /// If the request cannot be met by this transport, or a peer is known to be lost.
    fn start(
        self: Arc<Self>,
        label: &'static str,
        collective: Collective,
    ) -> Result<Pending, TransportError>;

    /// The transport among some of the members, this rank one of them. Each member of this group
    /// calls it equally often; the new groups of one call are disjoint.
    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport>;

    /// Tells all peers that this rank will not go on; their waits end with `cause`.
    fn fail(&self, cause: &str);
}

/// A collective that was started.
#[must_use = "a collective that nobody waits for leaves its peers waiting"]
pub struct Pending(Box<dyn FnOnce() -> Result<Vec<u32>, TransportError> + Send>);

impl Pending {
    /// A collective that `finish` completes.
    pub fn new(finish: impl FnOnce() -> Result<Vec<u32>, TransportError> + Send + 'static) -> Self {
        Self(Box::new(finish))
    }

    /// The words that arrived, in the order of members; empty where they landed in a device's
    /// memory.
    ///
    /// # Errors
    /// If a peer is lost, in another collective, or silent beyond the deadline.
    pub fn wait(self) -> Result<Vec<u32>, TransportError> {
        (self.0)()
    }
}

impl Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

#[cfg(test)]
mod tests;
