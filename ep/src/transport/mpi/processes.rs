//! A group of ranks that are processes.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::endpoint::{Endpoint, State};
use super::message::Key;
use super::wire::Receiving;
use crate::transport::wait::{HAS_ENDED, Wait};
use crate::transport::{Mesh, Parts, Pending, Transport, TransportError};

/// One rank's place in a group of processes.
#[derive(Clone)]
pub(super) struct Processes {
    endpoint: Arc<Endpoint>,
    group: u64,
    /// World ranks.
    members: Arc<[usize]>,
    rank: usize,
    sequence: Arc<AtomicU64>,
    subgroups: Arc<AtomicU64>,
}

impl Processes {
    pub(super) fn world(endpoint: Arc<Endpoint>) -> Self {
        let (rank, members) = (endpoint.rank, (0..endpoint.ranks).collect());
        Self::in_group(endpoint, 0, members, rank)
    }

    fn in_group(endpoint: Arc<Endpoint>, group: u64, members: Arc<[usize]>, rank: usize) -> Self {
        let (sequence, subgroups) = Default::default();
        Self { endpoint, group, members, rank, sequence, subgroups }
    }

    /// Receives every member's part into one memory, in their order.
    fn receive(&self, wait: &Wait, own: &[u32]) -> Result<Vec<u32>, TransportError> {
        let (found, needed) = (own.len(), wait.words[self.rank]);
        if found != needed {
            let error = wait.mismatch(wait.rank, (wait.call, found), needed);
            return Err(failed(&mut self.endpoint.state(), error));
        }
        let mut receiving = Receiving::new(wait.words.iter().sum());
        let mut silent = Vec::with_capacity(self.members.len());
        let mut start = 0;
        for (member, words) in wait.words.iter().enumerate() {
            if member == self.rank {
                receiving.words()[start..start + words].copy_from_slice(own);
            } else {
                silent.push(Silent { rank: self.members[member], start, words: *words });
            }
            start += words;
        }
        self.endpoint.poll(|state| self.look(state, wait, &mut silent, &mut receiving))?;
        Ok(std::mem::take(receiving.words()))
    }

    /// One look at a collective: nothing yet, or its end.
    fn look(
        &self,
        state: &mut State,
        wait: &Wait,
        silent: &mut Vec<Silent>,
        receiving: &mut Receiving,
    ) -> Option<Result<(), TransportError>> {
        let key = Key { group: self.group, sequence: wait.sequence };
        let mut mismatch = None;
        silent.retain(|peer| {
            let Some(part) = state.take(key, peer.rank) else { return true };
            if part.is_of(wait.call) && part.words == peer.words {
                state.receive(receiving, peer.start, peer.rank, &part);
            } else {
                let found = part.words;
                mismatch.get_or_insert_with(|| wait.mismatch(peer.rank, (part, found), peer.words));
            }
            false
        });
        let arrived = state.is_received(receiving);
        let ended = silent.iter().find(|peer| state.has_ended(peer.rank));
        // Before any failure: what one member completed, all complete, so that all know what it knew
        // when it failed.
        if arrived && silent.is_empty() && mismatch.is_none() {
            return Some(Ok(()));
        }
        if let Some(failure) = state.failure() {
            return Some(Err(wait.lost(failure.rank, failure.cause.clone())));
        }
        let error = if let Some(error) = mismatch {
            error
        } else if let Some(peer) = ended {
            wait.lost(peer.rank, HAS_ENDED.to_owned())
        } else if wait.left(self.endpoint.deadline).is_none() {
            let mut missing: Vec<_> = silent.iter().map(|peer| peer.rank).collect();
            missing.extend(receiving.due());
            missing.sort_unstable();
            missing.dedup();
            wait.late(missing)
        } else {
            return None;
        };
        Some(Err(failed(state, error)))
    }
}

/// A member of which nothing has come, and where its words belong.
struct Silent {
    /// In the world.
    rank: usize,
    start: usize,
    words: usize,
}

/// An error that the others should hear of, too.
fn failed(state: &mut State, error: TransportError) -> TransportError {
    state.fail(&error.to_string());
    error
}

impl Mesh for Processes {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn deadline(&self) -> Duration {
        self.endpoint.deadline
    }

    fn start_parts(&self, parts: Parts) -> Result<Pending, TransportError> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let Parts { call, send, send_parts, recv_words } = parts;
        let key = Key { group: self.group, sequence };
        let mut state = self.endpoint.state();
        for (member, part) in send_parts.iter().enumerate().filter(|(to, _)| *to != self.rank) {
            state.send(self.members[member], (key, call), &send, part.clone());
        }
        drop(state);
        let this = self.clone();
        Ok(Pending::new(move || {
            let wait = Wait {
                rank: this.endpoint.rank,
                members: this.members.clone(),
                call,
                sequence,
                words: recv_words,
                started: Instant::now(),
            };
            this.receive(&wait, &send.words()[send_parts[this.rank].clone()])
        }))
    }

    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport> {
        let call = self.subgroups.fetch_add(1, Ordering::Relaxed);
        let rank = members.iter().position(|member| *member == self.rank);
        let rank = rank.expect("a rank joins groups that it is a member of");
        let members: Vec<usize> = members.iter().map(|member| self.members[*member]).collect();
        // The same on all members, which run one program. Groups that could be taken for each
        // other would have to share two ranks.
        let mut group = DefaultHasher::new();
        (self.group, call, &members).hash(&mut group);
        let group = group.finish();
        Arc::new(Self::in_group(self.endpoint.clone(), group, members.into(), rank))
    }

    fn fail(&self, cause: &str) {
        self.endpoint.state().fail(cause);
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processes(rank {} of {:?})", self.endpoint.rank, self.members)
    }
}
