//! `train checkpoint`: what it prints, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const RECIPE: &str = r#"
name = "checkpoint"
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
steps = 4
[data]
block_rows = 16
[parallel]
replicas = 2
shards = 2
dispatch = { kind = "ragged" }
[checkpoint]
every = 2
permanent_every = 4
"#;

fn train(args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_train")).args(args).output();
    let output = output.expect("the binary starts");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.concat();
    (output, said)
}

fn json(args: &[&str]) -> (Output, Value) {
    let (output, said) = train(args);
    let value = serde_json::from_slice(&output.stdout);
    (output, value.unwrap_or_else(|error| panic!("{error}: {said}")))
}

/// A run of four steps over 2 x 2 ranks in `folder`.
fn run_in(folder: &Path) -> PathBuf {
    let text = "{\"text\":\"the sea was grey and a gull rose over the rain\"}\n".repeat(40);
    std::fs::write(folder.join("corpus.jsonl"), text).expect("written");
    std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
    let (corpus, cache) = (folder.join("corpus.jsonl"), folder.join("cache"));
    let (run, recipe) = (folder.join("run"), folder.join("recipe.toml"));
    let (output, said) = train(&[
        "run",
        &recipe.display().to_string(),
        &format!("--set=data.sources=[{:?}]", corpus.display().to_string()),
        &format!("--set=data.heldout=[{:?}]", corpus.display().to_string()),
        &format!("--set=data.cache={:?}", cache.display().to_string()),
        "--out",
        &run.display().to_string(),
        "--device=cpu",
    ]);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("saving between steps takes up to"), "{said}");
    run
}

#[test]
fn checkpoints_are_listed_verified_and_written_for_other_ranks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = run_in(folder.path());
    let run = run.to_str().expect("a plain path");

    let (output, listed) = json(&["checkpoint", "list", run, "--json"]);
    assert!(output.status.success());
    let steps: Vec<_> = listed.as_array().expect("a list").iter().map(|c| &c["step"]).collect();
    assert_eq!(steps, [2, 4]);
    assert_eq!(listed[1]["layout"]["shards"], 2);
    assert_eq!((&listed[0]["kept"], &listed[1]["kept"]), (&"".into(), &"permanent".into()));
    let (_, said) = train(&["checkpoint", "list", run]);
    assert!(said.contains("2 x 2") && said.contains("whole; kept: permanent"), "{said}");

    let out = folder.path().join("solo");
    let out = out.to_str().expect("a plain path");
    let (output, said) =
        train(&["checkpoint", "reshard", run, "--step", "4", "--shards", "1", "--out", out]);
    assert!(output.status.success() && said.contains("2 x 2 -> 1 x 1"), "{said}");
    let (output, verified) = json(&["checkpoint", "verify", out, "--json"]);
    assert!(output.status.success());
    assert_eq!((&verified[0]["step"], &verified[0]["whole"]), (&4.into(), &true.into()));
    let (_, resharded) = json(&["checkpoint", "list", out, "--json"]);
    assert_eq!(resharded[0]["weights"], listed[1]["weights"]);
}

#[test]
fn what_is_wrong_with_a_checkpoint_is_named_and_has_its_status() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = run_in(folder.path());
    let damaged = run.join("checkpoints/step-00000004/shard-2-of-4.safetensors");
    let mut bytes = std::fs::read(&damaged).expect("read");
    let last = bytes.len() - 1;
    bytes[last] ^= 8;
    std::fs::write(&damaged, bytes).expect("written");
    std::fs::remove_file(run.join("checkpoints/step-00000002/manifest.json")).expect("removed");
    let run = run.to_str().expect("a plain path");

    let (output, said) = train(&["checkpoint", "verify", run, "--step", "4"]);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("step 4: checkpoint ") && said.contains("checksum of `"), "{said}");
    assert!(said.contains(&*damaged.display().to_string()), "{said}");
    let (output, verified) = json(&["checkpoint", "verify", run, "--json"]);
    assert_eq!(output.status.code(), Some(6));
    let problems = |line: usize| verified[line]["problems"].as_array().expect("a list").len();
    assert_eq!((problems(0), problems(1)), (1, 1), "{verified}");
    let (output, said) = train(&["checkpoint", "list", run]);
    assert!(output.status.success() && said.contains("no manifest"), "{said}");
    let out = folder.path().join("two");
    let out = out.to_str().expect("a plain path");
    let (output, _) =
        train(&["checkpoint", "reshard", run, "--step", "4", "--shards", "2", "--out", out]);
    assert_eq!(output.status.code(), Some(6));
    // What it had begun is no checkpoint.
    let (output, _) = train(&["checkpoint", "verify", out]);
    assert_eq!(output.status.code(), Some(6));
}

#[test]
fn help_fits_a_screen_and_has_an_example() {
    for command in [
        &["checkpoint"][..],
        &["checkpoint", "list"],
        &["checkpoint", "verify"],
        &["checkpoint", "reshard"],
    ] {
        let (output, said) = train(&[command, &["--help"]].concat());
        assert!(output.status.success() && said.contains("Example: train checkpoint"), "{said}");
        assert!(said.lines().count() <= 24, "{said}");
        assert!(said.lines().all(|line| line.len() <= 100), "{said}");
    }
}
