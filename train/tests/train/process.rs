//! The `train` binary on a model of one narrow layer, in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RECIPE: &str = r#"
name = "small"
[model]
preset = "mini_d96"
hidden_dim = 32
num_layers = 1
num_heads = 2
head_dim = 16
num_experts = 8
num_experts_per_token = 2
intermediate_dim = 16
latent_dim = 16
shared_intermediate_dim = 16
max_seq_len = 32
gated_norm_rank = 4
[batch]
rows = 4
[schedule]
steps = 1000
[data]
block_rows = 16
sources = ["corpus.jsonl"]
heldout = ["corpus.jsonl"]
cache = "cache"
"#;

/// A folder in which the binary runs.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A fresh one with a corpus and a recipe.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = "{\"text\":\"the sea was grey and a gull rose over the rain\"}\n".repeat(40);
        std::fs::write(folder.join("corpus.jsonl"), text).expect("written");
        std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `train run` into the subfolder `out`, with changes to the recipe.
    pub(crate) fn run(&self, out: &str, set: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command.current_dir(&self.0).args(["run", "recipe.toml", "--device=cpu", "--out", out]);
        command.args(set.iter().map(|set| format!("--set={set}")));
        command
    }
}

/// What a process wrote on both of its outputs.
pub(crate) fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Files of tensors in the checkpoint after `step` updates, by name.
pub(crate) fn tensors(run: &Path, step: u64) -> Vec<(String, Vec<u8>)> {
    let folder = run.join(format!("checkpoints/step-{step:08}"));
    assert!(folder.join("manifest.json").exists(), "{} is not whole", folder.display());
    let files = std::fs::read_dir(&folder).expect("a checkpoint");
    let files = files.map(|file| file.expect("listed").path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("read"))
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no tensors in {}", folder.display());
    files
}
