//! Experiments: what is expected, written before the first step; what came of it, written after.
//!
//! An experiment is a folder. `experiment.toml` ([`Protocol`]) is what a person writes: hypothesis,
//! plan, acceptance rule, the runs. [`seal`] completes it: it writes each run's whole recipe to
//! `recipes/` and the digests of all these files to `seal.json` ([`Seal`]). A run of one of those
//! recipes starts only while the seal holds, and has the seal's digest in its history before its first
//! step ([`link`]): so the order of the two does not hang on clocks. [`close`] reads what the runs
//! logged, applies the acceptance rule and writes `result.json` ([`Conclusion`]), once. `README.md` is
//! rendered from these three, and never read but to see that nobody wrote in it after the close.

mod close;
mod conclusion;
mod findings;
pub mod link;
mod measure;
mod protocol;
mod readme;
mod seal;
mod standing;

pub use close::{CloseOptions, close};
pub use conclusion::{
    Conclusion, CriterionFinding, Evidence, MeasureFinding, RunEvidence, Verdict,
};
pub use measure::{By, Criterion, Measure, Take};
pub use protocol::{Fact, PROTOCOL_FILE, PlannedRun, Protocol, Source, found};
pub use readme::{README_FILE, render};
pub use seal::{RECIPES, SEAL_FILE, Seal, seal};
pub use standing::{Standing, experiments_in};
