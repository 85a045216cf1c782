//! A run on a target that cannot take its checkpoints ends before it trains anything.

use std::path::Path;
use std::process::{Command, Output};

const RECIPE: &str = r#"
name = "rehearsal"
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
steps = 1
[data]
block_rows = 16
[parallel]
shards = 2
dispatch = { kind = "pooled_wave", num_expert_waves = 2 }
"#;

fn train(folder: &Path) -> Output {
    let text = "{\"text\":\"the sea was grey and a gull rose over the rain\"}\n".repeat(40);
    std::fs::write(folder.join("corpus.jsonl"), text).expect("written");
    std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
    let corpus = folder.join("corpus.jsonl").display().to_string();
    Command::new(env!("CARGO_BIN_EXE_train"))
        .arg("run")
        .arg(folder.join("recipe.toml"))
        .arg(format!("--set=data.sources=[{corpus:?}]"))
        .arg(format!("--set=data.heldout=[{corpus:?}]"))
        .arg(format!("--set=data.cache={:?}", folder.join("cache").display().to_string()))
        .arg(format!("--set=checkpoint.target={:?}", folder.join("target").display().to_string()))
        .arg("--out")
        .arg(folder.join("run"))
        .arg("--device=cpu")
        .output()
        .expect("the binary starts")
}

#[test]
fn a_target_that_one_rank_cannot_write_ends_the_run_before_its_first_step() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rehearsal");
    let _ = std::fs::remove_dir_all(&folder);
    // Where the second rank is to write its part there is a folder.
    let blocked = folder.join("target/rehearsal/attempt-1/part-1-of-2");
    std::fs::create_dir_all(&blocked).expect("a folder");
    let output = train(&folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    let cause = format!("error: rank 1: could not write {}: ", blocked.display());
    assert!(said.contains(&cause) && said.matches("rank").count() == 1, "{said}");
    assert!(!folder.join("run/metrics.jsonl").exists(), "nothing was trained");

    // The same target once it is free.
    std::fs::remove_dir_all(folder.join("target")).expect("removed");
    let output = train(&folder);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let place = folder.join("target").display().to_string();
    assert!(said.contains(&format!("checkpoints: {place}; a save rehearsed by 2 ranks")), "{said}");
    assert!(!folder.join("target/rehearsal").exists(), "it leaves nothing behind");
}
