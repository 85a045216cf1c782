use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::collectives::{self, Collective, Operation};
use super::{Pending, Transport, TransportError, Words};

/// What members must agree on when they meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The kind.
    pub operation: Operation,
    /// What it is for.
    pub label: &'static str,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.operation, self.label)
    }
}

/// A part of this rank's words for each member, and what comes from each.
#[derive(Clone)]
pub struct Parts {
    /// What the exchange belongs to.
    pub call: Call,
    /// The words.
    pub send: Arc<dyn Words>,
    /// What each member gets of them.
    pub send_parts: Vec<Range<usize>>,
    /// How many words come from each member.
    pub recv_words: Vec<usize>,
}

/// A connection of host memories in which every member can send to every other.
///
/// That is all that a transport over host memory has to bring: each of the six collectives is one
/// exchange of parts, or two.
pub trait Mesh: fmt::Debug + Send + Sync {
    /// This rank's position among the members.
    fn rank(&self) -> usize;

    /// The number of members.
    fn size(&self) -> usize;

    /// How long a wait may last before it is an error.
    fn deadline(&self) -> Duration;

    /// Begins to send and receive parts; both lists have an entry for each member.
    ///
    /// # Errors
    /// If a peer is known to be lost.
    fn start_parts(&self, parts: Parts) -> Result<Pending, TransportError>;

    /// See [`Transport::subgroup`].
    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport>;

    /// See [`Transport::fail`].
    fn fail(&self, cause: &str);
}

impl<M: Mesh + 'static> Transport for M {
    fn rank(&self) -> usize {
        Mesh::rank(self)
    }

    fn size(&self) -> usize {
        Mesh::size(self)
    }

    fn deadline(&self) -> Duration {
        Mesh::deadline(self)
    }

    fn start(
        self: Arc<Self>,
        label: &'static str,
        collective: Collective,
    ) -> Result<Pending, TransportError> {
        collectives::start(self, label, collective)
    }

    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport> {
        Mesh::subgroup(self, members)
    }

    fn fail(&self, cause: &str) {
        Mesh::fail(self, cause);
    }
}
