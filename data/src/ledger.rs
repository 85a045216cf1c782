//! What became of every document of a file: kept, or left out for a reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a document is not in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its text has no character.
    Empty,
    /// Its text, or the line that holds it, is not UTF-8.
    InvalidUtf8,
    /// The record is no object, lacks its text or has a field of another type.
    Malformed,
    /// Its text is longer than the recipe allows.
    TooLong,
    /// An earlier document has the same text.
    Duplicate,
    /// An earlier document has nearly the same text.
    NearDuplicate,
    /// It shares a long run of words with an evaluation text.
    Contaminated,
    /// A rule of the recipe refuses it.
    Rule,
}

impl Reason {
    /// Every reason, in the order of [`Ledger`]'s fields.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::InvalidUtf8,
        Self::Malformed,
        Self::TooLong,
        Self::Duplicate,
        Self::NearDuplicate,
        Self::Contaminated,
        Self::Rule,
    ];

    /// The name, as in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Duplicate => "duplicate",
            Self::NearDuplicate => "near_duplicate",
            Self::Contaminated => "contaminated",
            Self::Rule => "rule",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The account of one file, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ledger {
    /// Lines read, a last one without newline too; 0 for formats that have no lines.
    pub lines: u64,
    /// Lines of white space only, which hold no document.
    pub blank_lines: u64,
    /// Documents in: lines that are not blank, rows of a table, files of a folder.
    pub documents: u64,
    /// [`Reason::Empty`].
    pub empty: u64,
    /// [`Reason::InvalidUtf8`].
    pub invalid_utf8: u64,
    /// [`Reason::Malformed`].
    pub malformed: u64,
    /// [`Reason::TooLong`].
    pub too_long: u64,
    /// [`Reason::Duplicate`].
    pub duplicate: u64,
    /// [`Reason::NearDuplicate`].
    pub near_duplicate: u64,
    /// [`Reason::Contaminated`].
    pub contaminated: u64,
    /// [`Reason::Rule`].
    pub rule: u64,
    /// Documents handed on.
    pub kept: u64,
    /// UTF-8 bytes of the text of the kept documents.
    pub text_bytes: u64,
}

impl Ledger {
    /// Documents left out for a reason.
    pub fn left_out(&self, reason: Reason) -> u64 {
        match reason {
            Reason::Empty => self.empty,
            Reason::InvalidUtf8 => self.invalid_utf8,
            Reason::Malformed => self.malformed,
            Reason::TooLong => self.too_long,
            Reason::Duplicate => self.duplicate,
            Reason::NearDuplicate => self.near_duplicate,
            Reason::Contaminated => self.contaminated,
            Reason::Rule => self.rule,
        }
    }

    /// Counts a document that is left out.
    pub(crate) fn leave_out(&mut self, reason: Reason) {
        *self.count(reason) += 1;
    }

    fn count(&mut self, reason: Reason) -> &mut u64 {
        match reason {
            Reason::Empty => &mut self.empty,
            Reason::InvalidUtf8 => &mut self.invalid_utf8,
            Reason::Malformed => &mut self.malformed,
            Reason::TooLong => &mut self.too_long,
            Reason::Duplicate => &mut self.duplicate,
            Reason::NearDuplicate => &mut self.near_duplicate,
            Reason::Contaminated => &mut self.contaminated,
            Reason::Rule => &mut self.rule,
        }
    }

    /// Counts a document that is handed on.
    pub(crate) fn keep(&mut self, text: &str) {
        self.kept += 1;
        self.text_bytes += text.len() as u64;
    }

    /// The account of both.
    pub(crate) fn and(mut self, other: &Ledger) -> Self {
        for reason in Reason::ALL {
            *self.count(reason) += other.left_out(reason);
        }
        self.lines += other.lines;
        self.blank_lines += other.blank_lines;
        self.documents += other.documents;
        self.kept += other.kept;
        self.text_bytes += other.text_bytes;
        self
    }

    /// This account when some of the documents handed on were left out later: `judged` counts them by
    /// reason, and their bytes of text.
    pub(crate) fn without(mut self, judged: &Ledger) -> Self {
        for reason in Reason::ALL {
            let left_out = judged.left_out(reason);
            *self.count(reason) += left_out;
            self.kept -= left_out;
        }
        self.text_bytes -= judged.text_bytes;
        self
    }

    /// Whether every line and every document is accounted for.
    pub fn closes(&self) -> bool {
        let left_out: u64 = Reason::ALL.iter().map(|&reason| self.left_out(reason)).sum();
        let lines = self.lines == 0 || self.lines == self.blank_lines + self.documents;
        lines && self.documents == left_out + self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_closes_when_every_document_has_one_fate() {
        let mut ledger = Ledger { lines: 11, blank_lines: 2, documents: 9, ..Ledger::default() };
        for reason in Reason::ALL {
            assert!(!ledger.closes(), "{reason}");
            ledger.leave_out(reason);
            assert_eq!(ledger.left_out(reason), 1);
        }
        ledger.keep("é");
        assert!(ledger.closes());
        assert_eq!(ledger.text_bytes, 2);
        assert!(!Ledger { lines: 12, ..ledger }.closes());
        assert!(!Ledger { kept: 2, ..ledger }.closes());
    }
}
