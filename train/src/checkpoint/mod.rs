//! Saved states: a folder a step, the manifest last.
//!
//! ```text
//! step-00000040/
//!   shard-0-of-4.safetensors, ...   one a rank: parameters by path and their moments,
//!                           `<path>.momentum`, `<path>.m`, `<path>.v`; of stacks of experts slices,
//!                           `<name>@<first>..<end>` by global expert index
//!   balance.safetensors     pending balance of each layer, `balance.<layer>`
//!   recipe.toml             the run, every default written out
//!   manifest.json           sizes and checksums of the others; a folder without it is no checkpoint
//! ```
//!
//! Every rank writes a part: the tensors that all ranks hold are dealt over all of them, the experts
//! of a shard over its replicas (`dealing`). A tensor is hashed as it is written, in *units*: one
//! expert of a slice, or all of another tensor. So whoever reads any of it can verify what it has
//! read, and need read nothing more; each byte of a checkpoint is read once over all ranks.

pub mod census;
mod dealing;
pub mod digest;
pub mod load;
pub mod manifest;
mod newest;
mod read;
pub mod reshard;
pub mod resume;
mod same_run;
pub mod save;
pub mod slices;
pub mod snapshot;
pub mod tensors;
pub mod verify;
mod write;

pub mod folders;
pub mod pins;
pub mod rehearsal;
pub mod retention;

pub use manifest::Manifest;
pub use newest::{Candidate, Found, candidates, newest};
pub use rehearsal::rehearse;
pub use retention::prune;
pub use save::{Run, save};
pub use snapshot::Snapshot;
pub use tensors::Tensors;

use std::path::{Path, PathBuf};

/// Version of everything in a checkpoint's folder.
pub const FORMAT_VERSION: u32 = 3;

/// Bytes of pieces of tensors that a rank holds at most while it saves, with what waits for the disk.
pub const SAVE_PIECES_BYTES: u64 =
    (write::PIECES * write::PIECE_BYTES + crate::storage::FILE_BUFFER_BYTES) as u64;

pub(crate) const BALANCE: &str = "balance.safetensors";
pub(crate) const RECIPE: &str = "recipe.toml";
pub(crate) const MANIFEST: &str = "manifest.json";

/// The folder of a run's checkpoints, unless `checkpoint.target` names another place.
pub fn folder(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// The folder of the state after `step` updates, in the folder of a run.
pub fn step_folder(run: &Path, step: u64) -> PathBuf {
    folder(run).join(step_name(step))
}

/// The name of a checkpoint in its storage.
pub fn step_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The name of a file of a checkpoint in its storage.
pub(crate) fn file_name(step: u64, file: &str) -> String {
    format!("{}/{file}", step_name(step))
}

/// The file of one rank's part.
pub(crate) fn part_file(rank: usize, ranks: usize) -> String {
    format!("shard-{rank}-of-{ranks}.safetensors")
}
