//! The documents of a pool, and what should become of each.

use std::collections::BTreeMap;

use fulmar::data::Reason;

use super::text::{Author, sentences};

/// Texts above this are too long.
pub(super) const MAX_BYTES: usize = 20_000;

/// One record of a file.
pub(super) struct Record {
    pub(super) id: String,
    pub(super) text: Text,
    pub(super) language: &'static str,
    pub(super) topic: &'static str,
    pub(super) level: u32,
}

/// What stands where a text should.
pub(super) enum Text {
    Good(String),
    /// Bytes that are no UTF-8, in a line of JSON.
    Latin1(String),
    /// A line that is no JSON.
    Torn(String),
    /// An object without a text.
    Missing,
    Null,
    Number,
}

/// What a file should be found to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) documents: u64,
    pub(super) left_out: BTreeMap<Reason, u64>,
    pub(super) text_bytes: u64,
}

impl Truth {
    fn left_out(&mut self, reason: Reason) {
        *self.left_out.entry(reason).or_default() += 1;
    }
}

/// Which faults a format of file can hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lines,
    Table,
    Texts,
}

/// Writes documents, each hundredth of them with a fault of its own.
pub(super) struct Pool {
    author: Author,
    /// Documents that are kept, for copies; a bounded number.
    kept: Vec<String>,
    /// An evaluation text of which runs of words turn up in documents.
    evaluation: Vec<String>,
    number: u64,
}

const TOPICS: [&str; 4] = ["law", "cooking", "stars", "gardens"];

impl Pool {
    pub(super) fn new(seed: u64) -> Self {
        let mut author = Author::new(seed);
        let evaluation = author.words(400);
        Self { author, kept: Vec::new(), evaluation, number: 0 }
    }

    /// The text to evaluate on.
    pub(super) fn evaluation(&self) -> String {
        sentences(&self.evaluation)
    }

    /// The next record, counted in `truth`.
    pub(super) fn record(&mut self, kind: Kind, truth: &mut Truth) -> Record {
        truth.documents += 1;
        self.number += 1;
        let number = self.number;
        let text = self.author.document();
        let (text, language) = self.with_fault(number, text, kind, truth);
        if let (Text::Good(text), "en") = (&text, language) {
            self.remember(text);
        }
        Record {
            id: format!("doc-{number}"),
            text,
            language,
            topic: TOPICS[number as usize % TOPICS.len()],
            level: (number / 4 % 3) as u32,
        }
    }

    fn with_fault(
        &mut self,
        number: u64,
        text: String,
        kind: Kind,
        truth: &mut Truth,
    ) -> (Text, &'static str) {
        let mut fault = |reason, text| {
            truth.left_out(reason);
            (text, "en")
        };
        let of_lines = kind == Kind::Lines;
        match number % 100 {
            3 => fault(Reason::Empty, Text::Good(String::new())),
            13 => {
                let words = self.author.words(MAX_BYTES / 2);
                fault(Reason::TooLong, Text::Good(sentences(&words)))
            }
            23 | 73 if !self.kept.is_empty() => {
                let copy = self.author.below(self.kept.len());
                fault(Reason::Duplicate, Text::Good(self.kept[copy].clone()))
            }
            33 | 83 if !self.kept.is_empty() => {
                let copy = self.author.below(self.kept.len());
                let altered = self.author.altered(&self.kept[copy].clone());
                fault(Reason::NearDuplicate, Text::Good(altered))
            }
            43 => {
                let from = self.author.below(self.evaluation.len() - 40);
                let run = self.evaluation[from..from + 40].join(" ");
                fault(Reason::Contaminated, Text::Good(format!("{text} {run} {text}")))
            }
            53 if of_lines => fault(Reason::InvalidUtf8, Text::Latin1(text)),
            63 if of_lines => fault(Reason::Malformed, Text::Torn(text)),
            93 if of_lines => fault(Reason::Malformed, Text::Missing),
            94 if kind != Kind::Texts => fault(Reason::Malformed, Text::Null),
            95 if of_lines => fault(Reason::Malformed, Text::Number),
            96 if kind != Kind::Texts => {
                truth.left_out(Reason::Rule);
                (Text::Good(text), "xx")
            }
            _ => {
                truth.text_bytes += text.len() as u64;
                (Text::Good(text), "en")
            }
        }
    }

    /// Copies are made of documents that are kept themselves: altered ones would be of others.
    fn remember(&mut self, text: &str) {
        const KEPT: usize = 4_096;
        let whole = !text.is_empty() && text.len() <= MAX_BYTES;
        if whole && self.number % 100 < 3 && self.kept.len() < KEPT {
            self.kept.push(text.to_owned());
        }
    }
}
