//! Ranks as threads of one process.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mesh::Call;
use super::wait::{HAS_ENDED, Wait};
use super::{Mesh, Parts, Pending, Transport, TransportError, Words};

/// Where all ranks of a process meet.
///
/// A rank posts what it sends and goes on; whoever waits copies its part straight out of the
/// poster's memory, which the post keeps alive until the last member has read it. So there is one
/// copy, by the receiver, and nobody waits for readers.
pub(super) struct Hub {
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    posts: HashMap<PostKey, Post>,
    groups: HashMap<(u64, u64, Vec<usize>), u64>,
    failure: Option<Failure>,
    left: Vec<usize>,
}

/// Group, sequence number and world rank.
type PostKey = (u64, u64, usize);

struct Post {
    call: Call,
    send: Arc<dyn Words>,
    parts: Vec<Range<usize>>,
    unread: usize,
}

/// The first failure of a world.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) cause: String,
}

impl Hub {
    pub(super) fn new(deadline: Duration) -> Arc<Self> {
        Arc::new(Self { deadline, state: Mutex::default(), changed: Condvar::new() })
    }

    /// No code panics while it holds the lock, so a poisoned lock holds whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every wait from now on. The first failure stands.
    pub(super) fn fail(&self, rank: usize, cause: &str) {
        let failure = || Failure { rank, cause: cause.to_owned() };
        self.lock().failure.get_or_insert_with(failure);
        self.changed.notify_all();
    }

    /// Says that a rank has ended well; whoever still waits for it waits in vain.
    pub(super) fn leave(&self, rank: usize) {
        self.lock().left.push(rank);
        self.changed.notify_all();
    }

    /// Whether everything that was posted has been read by all whom it was for.
    pub(super) fn is_read(&self) -> bool {
        self.lock().posts.is_empty()
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }
}

/// One rank's place in a group of threads.
#[derive(Clone)]
pub(super) struct Threads {
    hub: Arc<Hub>,
    group: u64,
    /// World ranks.
    members: Arc<[usize]>,
    rank: usize,
    sequence: Arc<AtomicU64>,
    subgroups: Arc<AtomicU64>,
}

impl Threads {
    pub(super) fn world(hub: Arc<Hub>, rank: usize, ranks: usize) -> Self {
        Self::in_group(hub, 0, (0..ranks).collect(), rank)
    }

    fn in_group(hub: Arc<Hub>, group: u64, members: Arc<[usize]>, rank: usize) -> Self {
        Self { hub, group, members, rank, sequence: Arc::default(), subgroups: Arc::default() }
    }

    fn world_rank(&self) -> usize {
        self.members[self.rank]
    }

    /// Waits for one member's post and takes this rank's part of it.
    fn take(
        &self,
        wait: &Wait,
        peer: usize,
    ) -> Result<(Arc<dyn Words>, Range<usize>), TransportError> {
        let world_peer = self.members[peer];
        let key = (self.group, wait.sequence, world_peer);
        let mut state = self.hub.lock();
        loop {
            // Before any failure: what one member completed, all complete, so that all know what it
            // knew when it failed.
            if let Some(post) = state.posts.get_mut(&key) {
                let (call, part) = (post.call, post.parts[self.rank].clone());
                let send = post.send.clone();
                post.unread -= 1;
                if post.unread == 0 {
                    state.posts.remove(&key);
                }
                drop(state);
                let (found, needed) = (part.len(), wait.words[peer]);
                if call != wait.call || found != needed {
                    return Err(self.failed(wait.mismatch(world_peer, (call, found), needed)));
                }
                return Ok((send, part));
            }
            if let Some(failure) = &state.failure {
                return Err(wait.lost(failure.rank, failure.cause.clone()));
            }
            if state.left.contains(&world_peer) {
                drop(state);
                return Err(self.failed(wait.lost(world_peer, HAS_ENDED.to_owned())));
            }
            let Some(left) = wait.left(self.hub.deadline) else {
                let missing = self.missing(&state, wait.sequence);
                drop(state);
                return Err(self.failed(wait.late(missing)));
            };
            state = self
                .hub
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn missing(&self, state: &State, sequence: u64) -> Vec<usize> {
        // A post that everyone but this rank has read is gone only after this rank read it.
        let came = |rank: &usize| state.posts.contains_key(&(self.group, sequence, *rank));
        self.members.iter().copied().filter(|rank| !came(rank)).collect()
    }

    /// An error that the others should hear of, too.
    fn failed(&self, error: TransportError) -> TransportError {
        self.hub.fail(self.world_rank(), &error.to_string());
        error
    }
}

impl Mesh for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn deadline(&self) -> Duration {
        self.hub.deadline
    }

    fn start_parts(&self, parts: Parts) -> Result<Pending, TransportError> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let Parts { call, send, send_parts, recv_words } = parts;
        let post = Post { call, send, parts: send_parts, unread: self.members.len() };
        self.hub.lock().posts.insert((self.group, sequence, self.world_rank()), post);
        self.hub.changed.notify_all();
        let this = self.clone();
        Ok(Pending::new(move || {
            let wait = Wait {
                rank: this.world_rank(),
                members: this.members.clone(),
                call,
                sequence,
                words: recv_words,
                started: Instant::now(),
            };
            let mut arrived = Vec::with_capacity(wait.words.iter().sum());
            for peer in 0..this.members.len() {
                let (words, part) = this.take(&wait, peer)?;
                arrived.extend_from_slice(&words.words()[part]);
            }
            Ok(arrived)
        }))
    }

    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport> {
        let call = self.subgroups.fetch_add(1, Ordering::Relaxed);
        let rank = members.iter().position(|member| *member == self.rank);
        let rank = rank.expect("a rank joins groups that it is a member of");
        let members: Vec<usize> = members.iter().map(|member| self.members[*member]).collect();
        let group = {
            let groups = &mut self.hub.lock().groups;
            let next = groups.len() as u64 + 1;
            *groups.entry((self.group, call, members.clone())).or_insert(next)
        };
        Arc::new(Self::in_group(self.hub.clone(), group, members.into(), rank))
    }

    fn fail(&self, cause: &str) {
        self.hub.fail(self.world_rank(), cause);
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads(rank {} of {:?})", self.world_rank(), self.members)
    }
}
