#![doc = include_str!("../README.md")]

mod error;

mod cell;
pub mod corpus;
mod document;
mod documents;
mod judge;
mod ledger;
mod marks;
mod ngrams;
mod pieces;
mod read;
mod source;
mod tokenizer;

mod build;
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
mod page_order;
mod reading;
mod row;

pub use batch::Batch;
pub use build::{Build, BuildRecipe, BuildSettings, Built, CellsConfig};
pub use cell::CellKey;
pub use document::{DEFAULT_DOMAIN, Document};
pub use documents::{documents, documents_with};
pub use error::{DataError, Result};
pub use eval_rows::{EvalBatch, EvalDocument, EvalRows, NO_DOCUMENT};
pub use judge::{Assign, Judge, Verdict};
pub use ledger::{Ledger, Reason};
pub use lengths::{BatchPlan, LengthChange, LengthPlan, LengthStage, RowLengths};
pub use loader::{Loader, READ_AHEAD_BATCHES, RankShare, ReadAhead};
pub use marks::{BEGIN_OF_TEXT, DocumentMarks, END_OF_TEXT, MarkNames, MarksConfig};
pub use mixture::{DEFAULT_BLOCK_ROWS, MixtureConfig, MixturePlan, Stage};
pub use read::{
    DocumentReader, Fault, Limits, Outcome, Place, Quarantine, ReadOptions, Reject, RejectSink,
    Unit,
};
pub use reading::ReadPosition;
pub use row::{LengthReport, Row, RowSource};
pub use source::{
    ColumnsConfig, Compression, Format, Pool, Scalar, Source, SourceConfig, SourceFile,
    SourceIdentity, find_sources,
};
pub use store::{
    Cell, CellEntry, FORMAT_VERSION, FileEntry, MANIFEST_FILE, Manifest, NewDocument, Origin,
    QUARANTINE_FILE, ShardEntry, ShardLimits, SourceEntry, Span, Store, StoreWriter,
    TOKENIZER_FILE, TokenizerEntry,
};
pub use tokenize::{StoreOrigin, build_or_open, build_store};
pub use tokenizer::Tokenizer;
