//! The token store: a folder of memory-mapped token files, one per cell, and a manifest.
//!
//! ```text
//! <store>/store.json              manifest, written last
//! <store>/<domain>/q<quality>.tokens   header, tokens, document index
//! ```
//!
//! A store is written beside its final place and renamed once it is complete; it is never changed
//! afterwards.

mod format;
mod manifest;
mod reader;
mod shard;
mod shard_writer;
mod writer;

pub use format::FORMAT_VERSION;
pub use manifest::{CellEntry, MANIFEST_FILE, Manifest, SourceEntry, TokenizerEntry};
pub use reader::Store;
pub use shard::CellShard;
pub use writer::StoreWriter;
