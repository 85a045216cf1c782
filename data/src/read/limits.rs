//! How documents are read.

use serde::{Deserialize, Serialize};

/// Which lengths of a text are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// UTF-8 bytes of the longest text; longer ones are left out under
    /// [`Reason::TooLong`](crate::Reason::TooLong). Default 100,000,000. A line of JSON is read to
    /// six times that and 64 MiB, the longest that such a text can make it beside other fields; what
    /// lies behind is passed over, so that a file without line ends does not fill the memory.
    pub max_bytes: u64,
    /// Unicode characters of the shortest text; shorter ones, except empty ones, are left out under
    /// [`Reason::Rule`](crate::Reason::Rule). Default 1.
    pub min_characters: u64,
}

/// Room for the other fields of a line.
const OTHER_FIELDS_BYTES: u64 = 64 << 20;

impl Limits {
    /// Any text.
    pub const NONE: Self = Self { max_bytes: u64::MAX, min_characters: 0 };

    /// Bytes of the longest line that can hold a text within the limit.
    pub(crate) fn max_line_bytes(&self) -> u64 {
        // A byte of text is at most six in JSON, as in `\u0041`.
        self.max_bytes.saturating_mul(6).saturating_add(OTHER_FIELDS_BYTES)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 100_000_000, min_characters: 1 }
    }
}

/// How a [`DocumentReader`](crate::DocumentReader) reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether the first record that is not UTF-8 or malformed is an error, instead of being left
    /// out. Limits and rules of the recipe leave out either way.
    pub strict: bool,
    /// Which texts are taken.
    pub limits: Limits,
    /// Whether a domain that cannot name a cell is a fault. Not where something else chooses the
    /// cells, since the domain then decides nothing.
    pub checks_domain: bool,
}

impl ReadOptions {
    /// The first bad record is an error; texts of any length.
    pub const STRICT: Self = Self { strict: true, limits: Limits::NONE, checks_domain: true };
}

impl Default for ReadOptions {
    /// Bad records are left out; the default limits.
    fn default() -> Self {
        Self { strict: false, limits: Limits::default(), checks_domain: true }
    }
}
