//! The `train` binary over processes that MPI starts, beside the same run over threads.

use std::path::Path;
use std::process::{Command, Output};

use fulmar_tests::mpi::ENVIRONMENT;

const RECIPE: &str = r#"
name = "ranks"
[model]
preset = "mini_d96"
hidden_dim = 32
num_layers = 2
num_heads = 2
head_dim = 16
num_experts = 24
num_experts_per_token = 2
intermediate_dim = 16
latent_dim = 16
shared_intermediate_dim = 16
max_seq_len = 64
sliding_window = 32
gated_norm_rank = 4
[batch]
rows = 8
[schedule]
steps = 4
[parallel]
replicas = 2
shards = 2
deadline_secs = 60
dispatch = { kind = "pooled_wave", capacity_factor = 1.0, transport_capacity_factor = 1.0 }
switches = [{ step = 2, dispatch = { kind = "ragged", capacity_factor = 0.9 } }]
[data]
block_rows = 64
[evaluation]
batch_rows = 4
max_rows = 16
bigram = false
"#;

fn train(folder: &Path, out: &str, processes: bool, extra: &[&str]) -> Output {
    let train = env!("CARGO_BIN_EXE_train");
    let mut command = if processes {
        let mut command = Command::new("mpirun");
        command.args(["-n", "4", train]);
        command
    } else {
        Command::new(train)
    };
    command.envs(ENVIRONMENT).current_dir(folder).args(["run", "ranks.toml", "--device", "cpu"]);
    command.args(["--out", out]).args(extra);
    if processes {
        command.args(["--set", "parallel.ranks=mpi"]);
    }
    command.output().expect("a program that starts; of processes, `mpirun`")
}

fn recipe() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("ranks.toml"), RECIPE).expect("written");
    folder
}

fn said(output: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn processes_save_the_very_bits_of_threads() {
    let folder = recipe();
    for (out, processes) in [("threads", false), ("processes", true)] {
        let output = train(folder.path(), out, processes, &[]);
        assert!(output.status.success(), "{out}: {}", said(&output));
    }
    let file = |out: &str, name: &str| {
        let path = folder.path().join(out).join("checkpoints/step-00000004").join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for name in [
        "balance.safetensors",
        "shard-0-of-4.safetensors",
        "shard-1-of-4.safetensors",
        "shard-2-of-4.safetensors",
        "shard-3-of-4.safetensors",
    ] {
        assert!(file("threads", name) == file("processes", name), "{name} differs");
    }
}

#[test]
fn a_run_of_processes_that_fails_says_why_once_and_has_a_status() {
    let folder = recipe();
    let missing = "data.store=nowhere";
    let output = train(folder.path(), "failed", true, &["--set", missing]);
    assert!(!output.status.success(), "{}", said(&output));
    let said = said(&output);
    assert_eq!(said.matches("error: rank 0").count(), 1, "{said}");
    assert!(said.contains("nowhere"), "{said}");
}
