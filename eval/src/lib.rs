#![doc = include_str!("../README.md")]

pub mod bigram;
pub mod forecast;
pub mod generate;
pub mod heldout;
pub mod sampling;
pub mod scorer;

mod error;

pub use bigram::TokenBigram;
pub use error::EvalError;
pub use heldout::{EvalReport, Tally, evaluate};
pub use scorer::ModelScorer;
