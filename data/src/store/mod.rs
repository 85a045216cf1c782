//! The token store: a folder of memory-mapped token files, some for each cell, and a manifest.
//!
//! ```text
//! <store>/store.json                       manifest, written last
//! <store>/<cell>/00000.tokens, 00001...    header, tokens, document index
//! <store>/tokenizer.json                   what made the tokens
//! <store>/quarantine.jsonl                 documents left out, and why
//! ```
//!
//! A store is written beside its final place and renamed once it is complete; it is never changed
//! afterwards.

mod account;
mod cell;
mod cell_writer;
mod format;
mod index;
mod manifest;
mod reader;
mod shard;
mod shard_writer;
mod view;
mod writer;

pub use cell::Cell;
pub use cell_writer::ShardLimits;
pub use format::FORMAT_VERSION;
pub use index::{NewDocument, Span};
pub use manifest::{
    CellEntry, FileEntry, MANIFEST_FILE, Manifest, QUARANTINE_FILE, ShardEntry, SourceEntry,
    TOKENIZER_FILE, TokenizerEntry,
};
pub use reader::Store;
pub use writer::{Origin, StoreWriter};

pub(crate) use format::{HEADER_BYTES, Header, Layout, token_bytes};
pub(crate) use index::Index;
pub(crate) use shard_writer::{encode_tokens, header_of, write_index};
pub(crate) use view::View;
pub(crate) use writer::{check_cell, parent_of, sync_folder, write_synced};
