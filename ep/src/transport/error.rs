use std::time::Duration;

use thiserror::Error;

/// Why a collective did not complete. Ranks are those of the whole world, from 0.
#[derive(Debug, Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum TransportError {
    /// Peers that did not come.
    #[error(
        "rank {rank}: {call} (number {sequence}) waited {waited:?} for rank {missing:?}, which did \
         not come; needed all of {members:?}"
    )]
    Deadline {
        /// This rank.
        rank: usize,
        /// The operation and what it is for.
        call: String,
        /// How many collectives its group had started before.
        sequence: u64,
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// The ranks of the group.
        members: Vec<usize>,
        /// How long this rank waited.
        waited: Duration,
    },
    /// A peer that is in another collective, or sends another number of words.
    #[error(
        "rank {rank}: {call} (number {sequence}) got {found} from rank {peer}, needed {needed}"
    )]
    Mismatch {
        /// This rank.
        rank: usize,
        /// The peer.
        peer: usize,
        /// The operation and what it is for.
        call: String,
        /// How many collectives its group had started before.
        sequence: u64,
        /// What the peer does.
        found: String,
        /// What this rank needs.
        needed: String,
    },
    /// A peer that failed or ended while this rank needed it.
    #[error("rank {rank}: {call} (number {sequence}) lost rank {peer}: {cause}")]
    PeerLost {
        /// This rank.
        rank: usize,
        /// The peer.
        peer: usize,
        /// The operation and what it is for.
        call: String,
        /// How many collectives its group had started before.
        sequence: u64,
        /// What the peer said.
        cause: String,
    },
    /// A request that no peer could answer.
    #[error("rank {rank}: {call}: `{field}` is {found}, needed {needed}")]
    Request {
        /// This rank within its group.
        rank: usize,
        /// The operation and what it is for.
        call: String,
        /// What is wrong.
        field: &'static str,
        /// What was given.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// Something that must be equal on all ranks is not.
    #[error("`{what}` differs between ranks: rank {rank} has {found}, rank {peer} has {other}")]
    Disagree {
        /// What was compared.
        what: &'static str,
        /// The lowest rank of the group.
        rank: usize,
        /// Its value.
        found: String,
        /// The first rank that differs.
        peer: usize,
        /// Its value.
        other: String,
    },
    /// The library below.
    #[error("rank {rank}: {library}: {problem}")]
    Library {
        /// This rank.
        rank: usize,
        /// Its name.
        library: &'static str,
        /// What it said.
        problem: String,
    },
}
