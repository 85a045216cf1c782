//! This process's end of the connections to all others, shared by the groups it is in.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{hint, process, thread};

use super::message::{self, Key, Message, Part};
use super::wire::{MAX_TAG, Receiving, Sending, Wire};
use crate::transport::threads::Failure;
use crate::transport::{Call, TransportError, Words};

/// The tag of control messages; payloads have those above.
const CONTROL: c_int = 0;

pub(super) struct Endpoint {
    /// This rank.
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) deadline: Duration,
    state: Mutex<State>,
}

/// What is known of the world, and what is under way.
pub(super) struct State {
    rank: usize,
    /// Gone once the run has ended.
    wire: Option<Wire>,
    /// Where the next control message arrives.
    control: Receiving,
    /// Parts that came, and that nobody has waited for.
    inbox: HashMap<(Key, usize), Part>,
    sending: Vec<Sending>,
    /// The tag of the last payload to each rank. They go round, so that payloads may be received
    /// in any order unless one stays behind for 32,767 others.
    tags: Vec<c_int>,
    standings: Vec<Standing>,
    failure: Option<Failure>,
}

/// How far a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Running,
    /// Its body has ended well.
    Ended,
    /// Its body has ended after a failure.
    Stopped,
}

impl Endpoint {
    pub(super) fn connect(deadline: Duration) -> Result<Arc<Self>, TransportError> {
        let mut wire = Wire::initialise()?;
        let (rank, ranks) = (wire.rank(), wire.ranks());
        let mut control = Receiving::new(message::MESSAGE_WORDS);
        wire.receive(&mut control, 0..message::MESSAGE_WORDS, None, CONTROL);
        let state = State {
            rank,
            wire: Some(wire),
            control,
            inbox: HashMap::new(),
            sending: Vec::new(),
            tags: vec![CONTROL; ranks],
            standings: vec![Standing::Running; ranks],
            failure: None,
        };
        Ok(Arc::new(Self { rank, ranks, deadline, state: Mutex::new(state) }))
    }

    /// The state, up to date.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while the state is in pieces.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.progress();
        state
    }

    /// Looks at the state until `done` gives a value, at growing intervals.
    pub(super) fn poll<T>(&self, mut done: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut polls = 0_u32;
        loop {
            if let Some(value) = done(&mut self.state()) {
                return value;
            }
            polls = polls.saturating_add(1);
            match polls {
                // Not for long: a peer may need this core.
                0..32 => hint::spin_loop(),
                32..256 => thread::yield_now(),
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl State {
    /// Lets MPI work, and hears what ranks have to say.
    fn progress(&mut self) {
        if let Some(wire) = &mut self.wire {
            self.sending.retain_mut(|sending| !wire.is_sent(sending));
        }
        while let Some(message) = self.next_message() {
            match message {
                Some((from, Message::Part(key, part))) => {
                    drop(self.inbox.insert((key, from), part))
                }
                Some((from, Message::Failed(cause))) => self.note(Failure { rank: from, cause }),
                Some((from, Message::Ended)) => self.standings[from] = Standing::Ended,
                Some((from, Message::Stopped)) => self.standings[from] = Standing::Stopped,
                None => self.fail("a rank runs another program: what it says is unknown"),
            }
        }
    }

    fn next_message(&mut self) -> Option<Option<(usize, Message)>> {
        let wire = self.wire.as_mut()?;
        if !wire.is_received(&mut self.control) {
            return None;
        }
        let message = Message::decode(self.control.words());
        wire.receive(&mut self.control, 0..message::MESSAGE_WORDS, None, CONTROL);
        Some(message)
    }

    /// The first failure stands; the lowest rank's, where none knew of the other.
    fn note(&mut self, failure: Failure) {
        if self.failure.as_ref().is_none_or(|known| failure.rank < known.rank) {
            self.failure = Some(failure);
        }
    }

    /// This rank will not go on. If that is news, all hear of it.
    pub(super) fn fail(&mut self, cause: &str) {
        if self.failure.is_none() {
            self.tell(&Message::Failed(cause.to_owned()));
            self.note(Failure { rank: self.rank, cause: cause.to_owned() });
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Says something to all others.
    pub(super) fn tell(&mut self, message: &Message) {
        let Some(wire) = &mut self.wire else { return };
        let words: Arc<dyn Words> = Arc::new(message.encode(self.rank));
        for to in (0..self.standings.len()).filter(|to| *to != self.rank) {
            self.sending.extend(wire.send(&words, 0..words.words().len(), to, CONTROL));
        }
    }

    pub(super) fn has_ended(&self, rank: usize) -> bool {
        self.standings[rank] == Standing::Ended
    }

    /// The others that are not as far as that.
    pub(super) fn not_yet(&self, standing: Standing) -> Vec<usize> {
        let ranks = self.standings.iter().enumerate();
        let others = ranks.filter(|(rank, found)| *rank != self.rank && **found != standing);
        others.map(|(rank, _)| rank).collect()
    }

    /// Begins to send a part of `words` to a rank.
    pub(super) fn send(
        &mut self,
        to: usize,
        (key, call): (Key, Call),
        words: &Arc<dyn Words>,
        part: Range<usize>,
    ) {
        let Some(wire) = &mut self.wire else { return };
        let tag = self.tags[to] % MAX_TAG + 1;
        self.tags[to] = tag;
        let message = Message::Part(key, Part::new(call, part.len(), tag)).encode(self.rank);
        let message: Arc<dyn Words> = Arc::new(message);
        self.sending.extend(wire.send(&message, 0..message.words().len(), to, CONTROL));
        self.sending.extend(wire.send(words, part, to, tag));
    }

    /// What a rank brings to a collective, if that is known.
    pub(super) fn take(&mut self, key: Key, from: usize) -> Option<Part> {
        self.inbox.remove(&(key, from))
    }

    /// Begins to receive the payload of a part, from word `at` on.
    pub(super) fn receive(
        &mut self,
        receiving: &mut Receiving,
        at: usize,
        from: usize,
        part: &Part,
    ) {
        if let Some(wire) = &mut self.wire {
            wire.receive(receiving, at..at + part.words, Some(from), part.tag);
        }
    }

    pub(super) fn is_received(&mut self, receiving: &mut Receiving) -> bool {
        self.wire.as_mut().is_some_and(|wire| wire.is_received(receiving))
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.sending.is_empty()
    }

    /// Begins to receive what nobody has waited for, so that its senders can end.
    pub(super) fn receive_leftovers(&mut self) -> Vec<Receiving> {
        let leftovers: Vec<_> = self.inbox.drain().collect();
        let receive = leftovers.into_iter().map(|((_, from), part)| {
            let mut receiving = Receiving::new(part.words);
            self.receive(&mut receiving, 0, from, &part);
            receiving
        });
        receive.collect()
    }

    /// Takes MPI away, for its end. Whoever still has a transport finds it failed.
    pub(super) fn close(&mut self) -> Option<Wire> {
        let mut wire = self.wire.take()?;
        wire.cancel(&mut self.control);
        self.note(Failure { rank: self.rank, cause: "its run has ended".to_owned() });
        Some(wire)
    }

    /// Ends all processes.
    pub(super) fn abort(&mut self, status: c_int) -> ! {
        match &mut self.wire {
            Some(wire) => wire.abort(status),
            None => process::exit(status),
        }
    }
}
