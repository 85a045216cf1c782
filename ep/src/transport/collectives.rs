//! The six collectives, and each as exchanges of parts.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::mesh::{Call, Mesh, Parts};
use super::reduce::{Reduce, reduced};
use super::{Buffer, Pending, TransportError, Words};

/// Sums of at most this many words are formed by every member from everyone's words; longer ones
/// by halves of the work: each member sums a share, then shares are gathered.
const SMALL_REDUCE_WORDS: usize = 1 << 12;

/// What members do together.
#[derive(Debug, Clone)]
pub enum Collective {
    /// Each member gets an equal part of every member's words.
    AllToAll {
        /// As many parts as members, in their order.
        send: Buffer,
    },
    /// As `AllToAll`, with parts of any sizes.
    AllToAllV {
        /// The parts, in the order of members.
        send: Buffer,
        /// Words for each member.
        send_words: Vec<usize>,
        /// Words from each member.
        recv_words: Vec<usize>,
    },
    /// Each member gets the elementwise sum, maximum or minimum of all members' words.
    AllReduce {
        /// This member's elements.
        send: Buffer,
        /// What they are and what is done.
        reduce: Reduce,
    },
    /// Each member gets all members' words.
    AllGather {
        /// This member's words.
        send: Buffer,
        /// Words of each member.
        words: Vec<usize>,
    },
    /// Each member gets the words of one.
    Broadcast {
        /// The member that sends.
        root: usize,
        /// Its words; of the others, nothing is read.
        send: Buffer,
        /// How many.
        words: usize,
    },
    /// Nobody goes on before all have come.
    Barrier,
}

/// The kind of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `Collective`")]
pub enum Operation {
    AllToAll,
    AllToAllV,
    AllReduce,
    AllGather,
    Broadcast,
    Barrier,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
        })
    }
}

/// Begins a collective over a mesh.
pub(super) fn start(
    mesh: Arc<dyn Mesh>,
    label: &'static str,
    collective: Collective,
) -> Result<Pending, TransportError> {
    let size = mesh.size();
    let calls = |operation| Call { operation, label };
    match collective {
        Collective::AllToAll { send } => {
            let call = calls(Operation::AllToAll);
            let send = host(&*mesh, call, send)?;
            let words = send.words().len();
            if !words.is_multiple_of(size) {
                let needed = format!("a multiple of {size} members");
                return Err(request(&*mesh, call, "send", format!("{words} words"), needed));
            }
            let recv_words = vec![words / size; size];
            let send_parts = consecutive(&recv_words);
            mesh.start_parts(Parts { call, send, send_parts, recv_words })
        }
        Collective::AllToAllV { send, send_words, recv_words } => {
            let call = calls(Operation::AllToAllV);
            let send = host(&*mesh, call, send)?;
            for (field, found) in [("send_words", &send_words), ("recv_words", &recv_words)] {
                if found.len() != size {
                    let found = format!("{} entries", found.len());
                    return Err(request(
                        &*mesh,
                        call,
                        field,
                        found,
                        format!("{size}, one a member"),
                    ));
                }
            }
            let (sum, words) = (send_words.iter().sum::<usize>(), send.words().len());
            if sum != words {
                let needed = format!("{words}, the words of `send`");
                return Err(request(&*mesh, call, "send_words", format!("{sum} in all"), needed));
            }
            let send_parts = consecutive(&send_words);
            mesh.start_parts(Parts { call, send, send_parts, recv_words })
        }
        Collective::AllGather { send, words } => {
            let call = calls(Operation::AllGather);
            let send = host(&*mesh, call, send)?;
            gather(&*mesh, call, send, words)
        }
        Collective::AllReduce { send, reduce } => {
            let call = calls(Operation::AllReduce);
            let send = host(&*mesh, call, send)?;
            all_reduce(mesh, call, send, reduce)
        }
        Collective::Broadcast { root, send, words } => {
            let call = calls(Operation::Broadcast);
            let send = host(&*mesh, call, send)?;
            let sends = if mesh.rank() == root { words } else { 0 };
            if send.words().len() < sends {
                let found = format!("{} words", send.words().len());
                return Err(request(&*mesh, call, "send", found, format!("{words}")));
            }
            let mut recv_words = vec![0; size];
            recv_words[root] = words;
            mesh.start_parts(Parts { call, send, send_parts: vec![0..sends; size], recv_words })
        }
        Collective::Barrier => mesh.start_parts(Parts {
            call: calls(Operation::Barrier),
            send: Arc::new(Vec::new()),
            send_parts: vec![0..0; size],
            recv_words: vec![0; size],
        }),
    }
}

fn gather(
    mesh: &dyn Mesh,
    call: Call,
    send: Arc<dyn Words>,
    words: Vec<usize>,
) -> Result<Pending, TransportError> {
    let (size, rank, found) = (mesh.size(), mesh.rank(), send.words().len());
    if words.len() != size || words[rank] != found {
        let needed = format!("{size} entries, {found} for this member");
        return Err(request(mesh, call, "words", format!("{words:?}"), needed));
    }
    mesh.start_parts(Parts { call, send, send_parts: vec![0..found; size], recv_words: words })
}

fn all_reduce(
    mesh: Arc<dyn Mesh>,
    call: Call,
    send: Arc<dyn Words>,
    reduce: Reduce,
) -> Result<Pending, TransportError> {
    let (size, words) = (mesh.size(), send.words().len());
    if !words.is_multiple_of(reduce.element.words()) {
        let needed = format!("a multiple of {}", reduce.element.words());
        return Err(request(&*mesh, call, "send", format!("{words} words"), needed));
    }
    if words <= SMALL_REDUCE_WORDS || size == 1 {
        let gathered = gather(&*mesh, call, send, vec![words; size])?;
        return Ok(Pending::new(move || Ok(reduced(&gathered.wait()?, words, reduce))));
    }
    let shares = shares(words / reduce.element.words(), size, reduce.element.words());
    let own = shares[mesh.rank()].len();
    let send_parts = shares.clone();
    let scattered =
        mesh.start_parts(Parts { call, send, send_parts, recv_words: vec![own; size] })?;
    Ok(Pending::new(move || {
        let share: Arc<dyn Words> = Arc::new(reduced(&scattered.wait()?, own, reduce));
        let words = shares.iter().map(Range::len).collect();
        gather(&*mesh, call, share, words)?.wait()
    }))
}

/// `elements` of `width` words each, cut into `size` shares that differ by one element at most.
fn shares(elements: usize, size: usize, width: usize) -> Vec<Range<usize>> {
    let start = |share| share * elements / size * width;
    (0..size).map(|share| start(share)..start(share + 1)).collect()
}

fn consecutive(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    let ranges = lengths.iter().map(|len| {
        let range = start..start + len;
        start = range.end;
        range
    });
    ranges.collect()
}

fn host(mesh: &dyn Mesh, call: Call, buffer: Buffer) -> Result<Arc<dyn Words>, TransportError> {
    match buffer {
        Buffer::Host(words) => Ok(words),
        Buffer::Device(region) => {
            let needed = "host memory, all that this transport reaches".to_owned();
            Err(request(mesh, call, "send", format!("{region:?}"), needed))
        }
    }
}

fn request(
    mesh: &dyn Mesh,
    call: Call,
    field: &'static str,
    found: String,
    needed: String,
) -> TransportError {
    TransportError::Request { rank: mesh.rank(), call: call.to_string(), field, found, needed }
}
