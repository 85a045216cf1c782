//! Why there is no forecast.

use thiserror::Error;

/// What is wrong with a ladder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// A table that cannot be read.
    #[error("ladder `{origin}` is no table of losses")]
    Table {
        /// The file, or what it is called.
        origin: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A file that cannot be read.
    #[error("cannot read ladder `{origin}`")]
    Read {
        /// The file.
        origin: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A number of a rung that cannot be.
    #[error("rung `{rung}`: {what} is {found}, needed {needed}")]
    Rung {
        /// Name of the rung.
        rung: String,
        /// What of it.
        what: String,
        /// The value.
        found: String,
        /// The rule.
        needed: String,
    },
    /// Too few rungs to fit two numbers and see whether they hold.
    #[error("found {found} rung(s) with losses at {progress}% of their run, needed {needed}")]
    TooFew {
        /// Rungs there are.
        found: usize,
        /// Progress in percent.
        progress: usize,
        /// Rungs needed.
        needed: usize,
    },
    /// Rungs between which no slope can be seen.
    #[error("rungs `{first}` and `{second}` both spend {flops:e} FLOPs, needed different compute")]
    EqualCompute {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// What both spend.
        flops: f64,
    },
    /// A run to be forecast whose compute is not known.
    #[error("the ladder has no FLOPs of `{target}`; it has those of {known}")]
    UnknownTarget {
        /// The run asked for.
        target: String,
        /// Those there are.
        known: String,
    },
}

/// A number of a rung that breaks a rule.
pub(super) fn refused(
    rung: &str,
    what: impl Into<String>,
    found: impl ToString,
    needed: impl Into<String>,
) -> ForecastError {
    let (rung, what) = (rung.to_owned(), what.into());
    ForecastError::Rung { rung, what, found: found.to_string(), needed: needed.into() }
}
