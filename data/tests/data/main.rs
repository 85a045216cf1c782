//! Tests of the data crate through its public face, as one binary.

mod bad_corpus;
mod bad_store;
mod builds;
mod documents;
mod eval_rows;
mod fixture;
mod kills;
mod lengths;
mod llama;
mod loader;
mod mixture;
mod row_lengths;
mod rows;
mod rules;
mod shipped;
mod store;
mod tokenizer;
