//! `train checkpoint export|import` and `train eval` as people run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RECIPE: &str = r#"
name = "interchange"
[model]
preset = "mini_d96"
hidden_dim = 32
num_layers = 2
num_heads = 2
head_dim = 16
num_experts = 8
num_experts_per_token = 2
intermediate_dim = 16
latent_dim = 16
shared_intermediate_dim = 16
max_seq_len = 32
sliding_window = 16
gated_norm_rank = 4
[batch]
rows = 4
[schedule]
steps = 2
[data]
block_rows = 16
"#;

/// A folder with a corpus and a recipe.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = "{\"text\":\"the sea was grey and a gull rose over the rain\"}\n".repeat(40);
        std::fs::write(folder.join("corpus.jsonl"), text).expect("written");
        std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
        Self(folder)
    }

    /// Runs `train` in the folder.
    fn train(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command.args(arguments).current_dir(&self.0).output().expect("the binary starts")
    }

    /// As [`train`](Self::train) where it must succeed; what it said.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.train(arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{error}");
        said
    }
}

const DATA: [&str; 3] = [
    "--set=data.sources=[\"corpus.jsonl\"]",
    "--set=data.heldout=[\"corpus.jsonl\"]",
    "--set=data.cache=\"cache\"",
];

fn with_data<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().copied().chain(DATA).collect()
}

#[test]
fn weights_go_out_and_in_and_are_evaluated() {
    let place = Place::new("interchange");
    let run = ["run", "recipe.toml", "--out", "run", "--device", "cpu"];
    let said = place.done(&with_data(&run));
    let table = |said: &str| {
        let from = said.find("held-out text").expect("a table");
        let lines = said[from..].lines().skip(1).take(3);
        lines.map(|line| line.get(..37).unwrap_or(line).trim_end().to_owned()).collect::<Vec<_>>()
    };
    let of_run = table(&said);
    let evaluated =
        place.done(&["eval", "run", "--device", "cpu", "--record", "--batch-rows", "3"]);
    assert_eq!(table(&evaluated), of_run);
    assert!(place.0.join("run/evaluations.jsonl").exists());

    let export = ["checkpoint", "export", "run", "--step", "2", "--out"];
    let said = place.done(&[&export[..], &["hf", "--max-shard-bytes", "100000"]].concat());
    assert!(said.contains("step-00000002 (step 2)") && said.contains("other bits"), "{said}");
    let said = place.done(&[&export[..], &["half", "--dtype", "bf16", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["check"]["prompts"].as_array().map(Vec::len), Some(3), "{said}");
    let said = place.done(&[&export[..], &["plain", "--no-check"]].concat());
    assert!(said.contains("unchecked"), "{said}");

    let import = ["checkpoint", "import", "hf", "--out", "tuned", "--rows", "4", "--steps", "3"];
    let said = place.done(&with_data(&import));
    assert!(said.contains("train run tuned/recipe.toml --out tuned --resume"), "{said}");
    let said =
        place.done(&["run", "tuned/recipe.toml", "--out", "tuned", "--resume", "--device", "cpu"]);
    assert!(said.contains("step-00000000 (step 0)"), "{said}");
    let of_both = place.done(&["eval", "run", "tuned", "--device", "cpu", "--json"]);
    assert_eq!(of_both.lines().count(), 2, "{of_both}");
}

#[test]
fn what_cannot_be_exchanged_ends_with_the_status_of_its_kind() {
    let place = Place::new("interchange_failures");
    let output = place.train(&["checkpoint", "import", "nothing", "--out", "run"]);
    assert_eq!(output.status.code(), Some(2), "flags are missing: {output:?}");
    let output = place.train(&["checkpoint", "export", "nothing", "--out", "hf"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    std::fs::create_dir(place.0.join("empty")).expect("a folder");
    std::fs::write(place.0.join("empty/config.json"), "{}").expect("written");
    let import = ["checkpoint", "import", "empty", "--out", "run", "--rows", "4", "--steps", "1"];
    let output = place.train(&import);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("error: empty: there is neither"), "{said}");
}
