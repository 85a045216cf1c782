//! Saved states: a folder a step, the manifest last.
//!
//! ```text
//! checkpoints/step-00000040/
//!   weights.safetensors     every parameter but the expert stacks, by path
//!   optimizer.safetensors   `<path>.momentum`, `<path>.m`, `<path>.v` of the same
//!   experts-0-of-2.safetensors, ...   one a shard: slices of expert stacks and of their moments,
//!                           `<name>@<first>..<end>` by global expert index
//!   balance.safetensors     pending balance of each layer
//!   recipe.toml             the run, every default written out
//!   manifest.json           sizes and checksums of the others; a folder without it is no checkpoint
//! ```

pub mod load;
pub mod manifest;
pub mod save;
pub mod slices;

pub mod folders;
pub mod pins;
pub mod rehearsal;
pub mod retention;

pub use load::{Found, newest};
pub use manifest::Manifest;
pub use rehearsal::rehearse;
pub use retention::prune;
pub use save::save;

use std::path::{Path, PathBuf};

/// Version of everything in a checkpoint's folder.
pub const FORMAT_VERSION: u32 = 2;

pub(crate) const WEIGHTS: &str = "weights.safetensors";
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
pub(crate) const BALANCE: &str = "balance.safetensors";
pub(crate) const RECIPE: &str = "recipe.toml";
pub(crate) const MANIFEST: &str = "manifest.json";

/// The folder of a run's checkpoints.
pub fn folder(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// The folder of the state after `step` updates.
pub fn step_folder(run: &Path, step: u64) -> PathBuf {
    folder(run).join(format!("step-{step:08}"))
}

/// The file of one shard's experts.
pub(crate) fn experts_file(shard: usize, shards: usize) -> String {
    format!("experts-{shard}-of-{shards}.safetensors")
}

/// Whether a file of a checkpoint holds experts.
pub(crate) fn holds_experts(file: &str) -> bool {
    file.starts_with("experts-")
}
