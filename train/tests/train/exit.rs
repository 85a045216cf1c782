//! How the `train` binary ends when one of its ranks fails.

use std::path::Path;
use std::process::Command;

const RECIPE: &str = r#"
name = "exit"
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
replicas = 2
shards = 2
dispatch = { kind = "pooled_wave", num_expert_waves = 2 }
"#;

#[test]
fn a_file_that_one_rank_cannot_write_fails_the_process_and_is_named_once() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exit");
    let _ = std::fs::remove_dir_all(&folder);
    // Where the second rank is to write its part there is a folder.
    let blocked = folder.join("run/checkpoints/step-00000001/shard-1-of-4.safetensors");
    std::fs::create_dir_all(&blocked).expect("a folder");
    let text = "{\"text\":\"the sea was grey and a gull rose over the rain\"}\n".repeat(40);
    std::fs::write(folder.join("corpus.jsonl"), text).expect("written");
    std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
    let corpus = folder.join("corpus.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_train"))
        .arg("run")
        .arg(folder.join("recipe.toml"))
        .arg(format!("--set=data.sources=[{:?}]", corpus.display().to_string()))
        .arg(format!("--set=data.heldout=[{:?}]", corpus.display().to_string()))
        .arg(format!("--set=data.cache={:?}", folder.join("cache").display().to_string()))
        .arg("--out")
        .arg(folder.join("run"))
        .arg("--device=cpu")
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    let cause = format!("rank 1: could not write {}", blocked.display());
    assert!(said.contains("error: ") && said.contains(&cause), "{said}");
    assert_eq!(said.matches(&*blocked.display().to_string()).count(), 1, "{said}");
    assert!(!said.contains("panicked") && !said.contains("lost rank"), "{said}");
}
