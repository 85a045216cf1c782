#![doc = include_str!("../README.md")]

mod error;

mod cell;
pub mod corpus;
mod document;
mod documents;
mod judge;
mod ledger;
mod ngrams;
mod source;
mod tokenizer;

mod store;
mod tokenize;
mod whole_file;

pub mod cells;
pub mod clean;

pub mod lengths;
pub mod mixture;
pub mod shuffle;

mod batch;
mod eval_rows;
mod loader;
pub mod pack;
mod reading;
mod row;

pub use batch::Batch;
pub use cell::CellKey;
pub use document::{DEFAULT_DOMAIN, Document, DocumentReader};
pub use documents::documents;
pub use error::{DataError, Result};
pub use eval_rows::{EvalBatch, EvalDocument, EvalRows, NO_DOCUMENT};
pub use judge::{Assign, Judge, Verdict};
pub use ledger::{Ledger, Reason};
pub use lengths::{BatchPlan, LengthChange, LengthPlan, LengthStage, RowLengths};
pub use loader::{Loader, READ_AHEAD_BATCHES};
pub use mixture::{DEFAULT_BLOCK_ROWS, MixtureConfig, MixturePlan, Stage};
pub use row::{LengthReport, Row, RowSource};
pub use source::Source;
pub use store::{
    CellEntry, CellShard, FORMAT_VERSION, MANIFEST_FILE, Manifest, SourceEntry, Store, StoreWriter,
    TokenizerEntry,
};
pub use tokenize::{StoreOrigin, build_or_open, build_store};
pub use tokenizer::{BEGIN_OF_TEXT, DocumentMarks, END_OF_TEXT, Tokenizer};
