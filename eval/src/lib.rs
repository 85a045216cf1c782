#![doc = include_str!("../README.md")]

pub mod bigram;
pub mod documents;
pub mod forecast;
pub mod generate;
pub mod heldout;
pub mod sampling;
pub mod scorer;
pub mod suite;

mod error;

pub use bigram::TokenBigram;
pub use documents::{DocumentSum, score};
pub use error::EvalError;
pub use heldout::{EvalReport, Tally, evaluate};
pub use scorer::ModelScorer;
pub use suite::{Suite, SuiteConfig, SuiteError};
