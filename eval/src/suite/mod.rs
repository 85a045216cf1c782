//! Suites: named sets of corpora, each corpus under a tag, read from a user's files.
//!
//! A suite is read leniently, once, into a store whose domains are the tags: a document without a
//! character is counted as empty, one that is not UTF-8 or no record with a text as rejected, and
//! neither stops the evaluation. Every tag must have a document, so that a macro mean is always one over
//! all tags.

mod config;
mod error;
mod folder;
mod lines;
mod published;
mod texts;

pub use config::SuiteConfig;
pub use error::SuiteError;
pub use lines::{DocumentLine, DocumentLines, Mode, Scores, read_lines};
pub use published::{PALOMA, Published, UNCHEATABLE};
pub use texts::Suite;

/// Name of the suite that ships with the project, or that a recipe's held-out files are.
pub const HELDOUT: &str = "heldout";
