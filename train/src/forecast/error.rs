//! Why runs are no ladder, or a file no forecast.

use std::path::PathBuf;

use thiserror::Error;

use super::Difference;

/// What is wrong with the runs of a ladder, or with a preregistered forecast.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RungsError {
    /// A run without steps.
    #[error("rung `{rung}`: {folder} has no steps in its log, needed a run that was begun")]
    NoSteps {
        /// Name of the rung.
        rung: String,
        /// The run's folder.
        folder: PathBuf,
    },
    /// A run whose log has no value of the metric at all.
    #[error(
        "rung `{rung}`: no evaluation in its log has `{metric}`; a rung is evaluated at each 5% \
         (`evaluation.points = 20`)"
    )]
    NoEvaluation {
        /// Name of the rung.
        rung: String,
        /// The metric.
        metric: String,
    },
    /// Evaluations that a run has passed without making them.
    #[error(
        "rung `{rung}`: the run is at step {completed}, and {missing} without `{metric}`; needed one \
         at each 5% (`evaluation.points = 20`)"
    )]
    PointsMissing {
        /// Name of the rung.
        rung: String,
        /// The metric.
        metric: String,
        /// Completed updates of the run.
        completed: u64,
        /// Progress and steps without one.
        missing: String,
    },
    /// Steps that the log lacks.
    #[error(
        "rung `{rung}`: its log has no `{metric}` of {gaps} step(s) before step {completed}, the first \
         of them {first}; needed every step"
    )]
    Gap {
        /// Name of the rung.
        rung: String,
        /// The metric of each step.
        metric: String,
        /// Steps that are missing.
        gaps: u64,
        /// The first of them.
        first: u64,
        /// Completed updates of the run.
        completed: u64,
    },
    /// Steps that one attempt has logged twice.
    #[error(
        "rung `{rung}`: one attempt has logged `{metric}` {doubles} time(s) more than once for a step; \
         needed the log of one process at a time"
    )]
    Doubled {
        /// Name of the rung.
        rung: String,
        /// The metric.
        metric: String,
        /// How often.
        doubles: u64,
    },
    /// A value that is not a number.
    #[error("rung `{rung}`: `{metric}` at step {step} is {found}, needed a finite number")]
    NotFinite {
        /// Name of the rung.
        rung: String,
        /// The metric.
        metric: String,
        /// Completed updates.
        step: u64,
        /// The value.
        found: f64,
    },
    /// Rows that grow in the course of a run: its FLOPs are no longer the same in each step.
    #[error(
        "rung `{rung}`: rows grow to {seq_len} tokens in its course; needed one row length, so that \
         every step has the same FLOPs"
    )]
    Context {
        /// Name of the rung.
        rung: String,
        /// Tokens of the next longer rows.
        seq_len: usize,
    },
    /// Two runs of one name.
    #[error("rungs {first} and {second} are both named `{rung}`, needed a name each")]
    SameName {
        /// The name.
        rung: String,
        /// Folder of one.
        first: PathBuf,
        /// Folder of the other.
        second: PathBuf,
    },
    /// Runs that differ in what no ladder may vary.
    #[error(
        "`{left}` and `{right}` cannot be of one ladder; they differ in {}",
        differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Differ {
        /// Name of one run.
        left: String,
        /// Name of the other.
        right: String,
        /// Every field in which they differ and may not.
        differences: Vec<Difference>,
    },
    /// A file that is no preregistered forecast, or was altered.
    #[error("forecast {path}: {problem}")]
    Preregistration {
        /// The file.
        path: PathBuf,
        /// What was found and what is needed.
        problem: String,
    },
}
