//! Weights in the published layout (SPEC section 10), out of checkpoints and into runs.
//!
//! ```text
//! DIR/
//!   model.safetensors       or model-00001-of-0000N.safetensors and model.safetensors.index.json
//!   tokenizer.json          as the run used it, and tokenizer_config.json beside it
//!   config.json             the shape of the model, written last: without it an export is not whole
//! ```

mod check;
mod config_json;
mod export;
mod folder;
mod import;
mod load;
mod names;
mod saved;
mod tensor_file;
mod turn;
mod write;

pub use check::{Check, PromptCheck};
pub use config_json::{ExportDtype, first_contradiction, from_json, to_json};
pub use export::{ExportOptions, Exported, export};
pub use folder::Folder;
pub use import::{ImportOptions, Imported, import};
pub use load::{Weights, load};
pub use names::{Exchanged, Names};
pub use saved::Saved;

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
