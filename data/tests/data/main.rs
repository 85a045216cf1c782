//! Tests of the data crate through its public face, as one binary.

mod bad_corpus;
mod bad_store;
mod cells;
mod cleaning;
mod documents;
mod eval_rows;
mod fixture;
mod lengths;
mod loader;
mod mixture;
mod row_lengths;
mod rows;
mod shipped;
mod store;
mod tokenizer;
