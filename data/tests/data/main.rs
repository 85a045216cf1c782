//! Tests of the data crate through its public face, as one binary.

mod archives;
mod bad_corpus;
mod bad_store;
mod builds;
mod cells;
mod cleaning;
mod documents;
mod eval_rows;
mod fixture;
mod kills;
mod lengths;
mod llama;
mod loader;
mod mixture;
mod mixture_diff;
mod mixture_plan;
mod parquet;
mod quarantine;
mod row_lengths;
mod rows;
mod rules;
mod seen;
mod shipped;
mod sources;
mod store;
mod tokenizer;
