//! Cleaning: which documents are left out since they repeat others or hold evaluation texts.
//!
//! One pass over all sources, in reading order:
//!
//! 1. *Contaminated*: a document that shares runs of words with an evaluation text
//!    ([`EvaluationTexts`]). First, so that no text survives as the original of left-out ones only to
//!    be left out itself.
//! 2. *Duplicate*: a document whose text an earlier one has, byte for byte.
//! 3. *Near duplicate*: MinHash signatures of what is left fall into bands; documents with an equal
//!    band are compared by estimated Jaccard similarity of their shingles, and groups are the
//!    transitive closure of pairs at or above the threshold, so that two members of a group may
//!    resemble each other less. Of a group the first document in reading order is kept.
//!
//! A source may be exempt from any of these: what is found there is counted and kept. Exempt
//! documents still are originals to others.
//!
//! The outcome is a [`Decisions`] file, which a build consults as a [`Judge`](crate::Judge), and a
//! [`CleanReport`] for a person. Neither depends on the number of threads.
//!
//! Memory: some 800 bytes for each document that is neither contaminated nor a duplicate (512 of them
//! the signature with the default settings, up to 74 in the table of texts), some 150 for each that
//! is left out, and the text that is being worked on. A pool beyond the memory of one machine is
//! cleaned in parts.

mod bands;
mod decisions;
mod evaluation;
mod examine;
mod groups;
mod pass;
mod report;
mod settings;
mod signature;
mod source;

pub use bands::Comparisons;
pub use decisions::{BoundDecisions, DECISIONS_VERSION, Decision, Decisions};
pub use evaluation::{Contamination, EvaluationTexts};
pub use pass::{Cleaned, clean};
pub use report::{CleanReport, Example, FoundText, LargestGroup, SourceReport};
pub use settings::{CleanSettings, ContaminationSettings, FuzzySettings, Shingle};
pub use source::CleanSource;
