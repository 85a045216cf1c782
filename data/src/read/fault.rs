//! What can be wrong with a record, and where it is.

use std::{fmt, sync::Arc};

use crate::Reason;

/// What records of a file are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of JSON lines, counted from 1 in the decompressed text.
    Line,
    /// Of a table, counted from 1.
    Row,
    /// The file itself.
    File,
}

/// A record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: Arc<str>,
    /// What its records are called.
    pub unit: Unit,
    /// Counted from 1.
    pub record: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, unit, record } = self;
        match unit {
            Unit::Line => write!(f, "`{file}` line {record}"),
            Unit::Row => write!(f, "`{file}` row {record}"),
            Unit::File => write!(f, "`{file}`"),
        }
    }
}

/// Why a record is no document: an error in strict mode, in lenient mode the evidence in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A line, a field or a file is not UTF-8.
    #[error("invalid UTF-8 at byte {byte} of {of}; convert the file")]
    InvalidUtf8 {
        /// Offset of the first bad byte, from 0.
        byte: u64,
        /// What it is counted in, as in "the line".
        of: String,
    },
    /// A line is not JSON, or its text has half a surrogate pair.
    #[error("not a JSON object with a `text` field: {reason} at byte {byte} of the line")]
    NotJson {
        /// Offset of the byte at which parsing stopped, from 0.
        byte: u64,
        /// What the parser found.
        reason: String,
    },
    /// A line is valid JSON, yet not an object.
    #[error("found a JSON value that starts with `{found}`, need an object")]
    NotAnObject {
        /// The first character of the value.
        found: char,
    },
    /// A field that is needed is not there, or null.
    #[error("the record has no `{column}`; every record needs one")]
    Missing {
        /// The field.
        column: String,
    },
    /// A field has the wrong type.
    #[error("`{column}` has the wrong type or range: found {found}, need {needed}")]
    FieldType {
        /// The field.
        column: String,
        /// What is there.
        found: String,
        /// What should be there.
        needed: &'static str,
    },
    /// A domain that cannot name a folder.
    #[error("document `{document}`: `domain` is {domain:?}; use {}", crate::CellKey::DOMAIN_RULE)]
    Domain {
        /// Id of the document.
        document: String,
        /// The domain found.
        domain: String,
    },
}

impl Fault {
    /// What a document with this fault is counted under.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidUtf8 { .. } => Reason::InvalidUtf8,
            _ => Reason::Malformed,
        }
    }

    /// Offset of the fault in the record's bytes.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::InvalidUtf8 { byte, .. } | Self::NotJson { byte, .. } => *byte,
            _ => 0,
        }
    }
}
