//! A checkpoint into the published layout.

use std::path::{Path, PathBuf};

use fulmar_data::{BEGIN_OF_TEXT, END_OF_TEXT, Tokenizer};

use serde::Serialize;
use serde_json::json;

use super::{CONFIG, Check, ExportDtype, Folder, Saved, TOKENIZER, TOKENIZER_CONFIG};
use super::{Weights, to_json, write};
use crate::assemble;
use crate::error::TrainError;

/// How a checkpoint is exported.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The folder to write, new or empty.
    pub out: PathBuf,
    /// Type of the weights.
    pub dtype: ExportDtype,
    /// Most bytes of tensors in a file; a larger tensor has a file to itself.
    pub max_shard_bytes: u64,
    /// Whether what was written is read again and its logits compared; it takes the memory of a
    /// whole model, which the export itself does not.
    pub check: bool,
}

/// What was exported.
#[derive(Debug, Clone, Serialize)]
pub struct Exported {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// Its completed updates.
    pub step: u64,
    /// The folder.
    pub out: PathBuf,
    /// Files of weights.
    pub files: usize,
    /// Tensors in them.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// The comparison, unless it was left out.
    pub check: Option<Check>,
}

/// Writes a checkpoint's weights, with the pending balance as router biases, shape and tokenizer.
/// Weights pass one tensor at a time.
///
/// # Errors
/// If the folder holds something, a file cannot be written, or what was written reads otherwise
/// than the checkpoint ([`TrainError::Interchange`]).
pub fn export(saved: &Saved, options: &ExportOptions) -> Result<Exported, TrainError> {
    let out = &options.out;
    make_empty(out)?;
    let tokenizer = assemble::tokenizer(saved.model(), &saved.config().data)?;
    let marks = [tokenizer.bos_id(), tokenizer.eos_id()];
    let config = to_json(saved.model(), options.dtype, marks)?;
    let written = write::weights(saved, out, options.dtype, options.max_shard_bytes)?;
    write::text_file(&out.join(TOKENIZER), tokenizer.json())?;
    write::text_file(&out.join(TOKENIZER_CONFIG), &tokenizer_config(saved))?;
    let check = match options.check {
        true => Some(checked(saved, options, &config, &tokenizer)?),
        false => None,
    };
    // Last, so that no folder that was cut short or found wrong is taken for an export.
    write::text_file(&out.join(CONFIG), &config)?;
    Ok(Exported {
        checkpoint: saved.folder(),
        step: saved.step(),
        out: out.clone(),
        files: written.files,
        tensors: written.tensors,
        bytes: written.bytes,
        check,
    })
}

/// Reads the export the way an import does, and compares.
fn checked(
    saved: &Saved,
    options: &ExportOptions,
    config: &str,
    tokenizer: &Tokenizer,
) -> Result<Check, TrainError> {
    let out = &options.out;
    let folder = Folder::described(out, config)?;
    let found = folder.tokenizer()?;
    if found.digest() != tokenizer.digest() {
        let problem = format!("tokenizer {}, needed {}", found.digest(), tokenizer.digest());
        return Err(TrainError::interchange(out, problem));
    }
    let check = Check::new(saved, &folder, tokenizer, options.dtype)?;
    match check.problem() {
        Some(problem) => Err(TrainError::interchange(out, format!("{problem}\n{}", check.table()))),
        None => Ok(check),
    }
}

/// What readers need to make a tokenizer of `tokenizer.json` by class, not by kind of model.
fn tokenizer_config(saved: &Saved) -> String {
    let marks = saved.config().data.marks;
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "add_bos_token": marks.bos,
        "add_eos_token": marks.eos,
        "model_max_length": saved.model().max_seq_len,
        "clean_up_tokenization_spaces": false,
    });
    serde_json::to_string_pretty(&config).expect("plain values") + "\n"
}

fn make_empty(out: &Path) -> Result<(), TrainError> {
    std::fs::create_dir_all(out).map_err(TrainError::io("create", out))?;
    let mut entries = std::fs::read_dir(out).map_err(TrainError::io("list", out))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => {
            let problem = "holds something already, needed a new or empty folder";
            Err(TrainError::interchange(out, problem))
        }
    }
}
