use thiserror::Error;

use crate::counts::DispatchCounts;
use crate::transport::TransportError;
use crate::world::Layout;

/// What can go wrong between tokens and experts.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum EpError {
    /// The router chose no expert for a valid token, which it does when a score is not finite.
    #[error("token {token} has no expert in slot {slot}: its router scores are not finite")]
    NotRouted {
        /// Position of the token in this shard's batch.
        token: usize,
        /// The empty slot.
        slot: usize,
    },
    /// A chosen expert does not exist.
    #[error("token {token} chose expert {found} in slot {slot}, needed an id below {num_experts}")]
    ExpertId {
        /// Position of the token in this shard's batch.
        token: usize,
        /// The slot.
        slot: usize,
        /// The id found.
        found: i32,
        /// How many experts there are.
        num_experts: usize,
    },
    /// The validity mask does not have one entry for each token.
    #[error("the validity mask has {found} entries, needed one for each of {tokens} tokens")]
    ValidMask {
        /// Entries found.
        found: usize,
        /// Tokens in the batch.
        tokens: usize,
    },
    /// Ranks that cannot be laid out so.
    #[error(
        "{} replicas of {} shards, rows over {}: needed {needed}",
        layout.replicas, layout.shards, layout.context
    )]
    Layout {
        /// What was asked for.
        layout: Layout,
        /// What is needed.
        needed: String,
    },
    /// A collective that failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Counts that do not add up: an assignment was lost or invented.
    #[error("assignments do not add up: {0:?}")]
    CountIdentity(DispatchCounts),
}
