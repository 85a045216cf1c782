//! The whole, seen through the facade.

mod process;
mod tiny;

mod bad_input;
mod capacity;
mod checkpoints;
mod evaluation;
mod exactness;
mod licences;
mod not_finite;
mod recipes;
mod sequence_balance;
