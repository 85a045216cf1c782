//! What ranks tell each other beside the words of a collective.

use std::ffi::c_int;
use std::fmt;

use crate::transport::reduce::{values_of, words_of};
use crate::transport::{Call, Operation};

/// Words of a control message at most: one that MPI sends whole, before anybody asks for it.
pub(super) const MESSAGE_WORDS: usize = 1000;

/// "FULMAR" and the version of the format, so that ranks of different programs notice.
const MAGIC: u64 = u64::from_le_bytes(*b"FULMAR\0\x01");

/// Magic, kind, sender; group, sequence, operation, words and tag of a part; length of the text.
const HEADER_VALUES: usize = 9;

/// A byte a word: labels are short, causes are rare. What is longer is cut.
const TEXT_BYTES: usize = MESSAGE_WORDS - 2 * HEADER_VALUES;

/// As they are numbered in messages.
const OPERATIONS: [Operation; 6] = [
    Operation::AllToAll,
    Operation::AllToAllV,
    Operation::AllReduce,
    Operation::AllGather,
    Operation::Broadcast,
    Operation::Barrier,
];

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// A rank takes part in a collective.
    Part(Key, Part),
    /// It has failed first, and why.
    Failed(String),
    /// Its body has ended after a failure, its own or another's. Its last message.
    Stopped,
    /// Its body has ended well. Its last message, unless a peer then fails.
    Ended,
}

/// A collective of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) group: u64,
    pub(super) sequence: u64,
}

/// What a rank brings to a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) operation: Operation,
    pub(super) label: String,
    /// The length of the payload.
    pub(super) words: usize,
    /// The tag of the payload.
    pub(super) tag: c_int,
}

impl Part {
    pub(super) fn new(call: Call, words: usize, tag: c_int) -> Self {
        let label = cut(call.label).to_owned();
        Self { operation: call.operation, label, words, tag }
    }

    pub(super) fn is_of(&self, call: Call) -> bool {
        self.operation == call.operation && self.label == cut(call.label)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.operation, self.label)
    }
}

impl Message {
    /// The words of this message from rank `from`.
    pub(super) fn encode(&self, from: usize) -> Vec<u32> {
        let (kind, values, text) = match self {
            Self::Part(Key { group, sequence }, part) => {
                let operation = OPERATIONS.iter().position(|known| *known == part.operation);
                let operation = operation.expect("each operation has a number") as u64;
                let values = [*group, *sequence, operation, part.words as u64, part.tag as u64];
                (0, values, part.label.as_str())
            }
            Self::Failed(cause) => (1, [0; 5], cut(cause)),
            Self::Stopped => (2, [0; 5], ""),
            Self::Ended => (3, [0; 5], ""),
        };
        let header = [MAGIC, kind, from as u64].into_iter().chain(values);
        let mut words = words_of(header.chain([text.len() as u64]));
        words.extend(text.bytes().map(u32::from));
        words
    }

    /// The sender and its message; nothing if a program sent it that knows other ones.
    pub(super) fn decode(words: &[u32]) -> Option<(usize, Self)> {
        let (header, text) = words.split_at_checked(2 * HEADER_VALUES)?;
        let header: [u64; HEADER_VALUES] = values_of(header).try_into().ok()?;
        let [magic, kind, from, group, sequence, operation, words, tag, length] = header;
        let text: Vec<u8> = text.get(..length as usize)?.iter().map(|byte| *byte as u8).collect();
        let text = String::from_utf8(text).ok()?;
        let message = match kind {
            0 => {
                let operation = *OPERATIONS.get(operation as usize)?;
                let (words, tag) = (words as usize, tag as c_int);
                Self::Part(Key { group, sequence }, Part { operation, label: text, words, tag })
            }
            1 => Self::Failed(text),
            2 => Self::Stopped,
            3 => Self::Ended,
            _ => return None,
        };
        (magic == MAGIC).then_some((from as usize, message))
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES)]
}
