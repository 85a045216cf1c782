//! S3 itself: its protocol, with signatures, to a server in this process.

use std::io::{ErrorKind, Write as _};
use std::process::Command;
use std::sync::Arc;

use fulmar_ep::World;
use fulmar_tests::s3_server::S3Server;
use fulmar_train::checkpoint::{pins, prune, rehearse};
use fulmar_train::config::CheckpointConfig;
use fulmar_train::storage::object_store::aws::AmazonS3Builder;
use fulmar_train::storage::object_store::path::Path;
use fulmar_train::storage::{ObjectStorage, Storage, open_storage};
use fulmar_train::{TrainError, recipe};

use super::contract::keeps_its_promises;

/// The least that S3 takes.
const PART_BYTES: usize = 5 << 20;

fn storage(server: &S3Server, secret: &str) -> ObjectStorage {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(S3Server::BUCKET)
        .with_access_key_id(S3Server::KEY)
        .with_secret_access_key(secret)
        .build()
        .expect("a client");
    let address = format!("s3://{}/of/run", S3Server::BUCKET);
    ObjectStorage::new(Arc::new(store), Path::from("of/run"), &address).with_part_bytes(PART_BYTES)
}

#[test]
fn s3_keeps_the_promises() {
    let server = S3Server::start();
    keeps_its_promises(&storage(&server, S3Server::SECRET), PART_BYTES);
}

#[test]
fn an_upload_that_is_dropped_is_never_visible() {
    let server = S3Server::start();
    let storage = storage(&server, S3Server::SECRET);
    let mut upload = storage.create("shard").expect("created");
    upload.write_all(&vec![1; 2 * PART_BYTES + 1]).expect("written");
    drop(upload);
    assert_eq!(storage.list("").expect("listed"), []);
    assert_eq!(storage.size("shard").expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn who_may_not_write_is_told_so() {
    let server = S3Server::start();
    let storage: &dyn Storage = &storage(&server, "another secret");
    let error = storage.write_all("shard", b"bytes").expect_err("the wrong secret");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn saves_are_rehearsed_pinned_and_pruned_in_a_bucket() {
    let server = S3Server::start();
    let storage: &dyn Storage = &storage(&server, S3Server::SECRET);
    let rehearsal = rehearse(storage, 1, &World::solo()).expect("a sound target");
    assert_eq!(rehearsal.removal_denied, None, "{rehearsal}");
    assert_eq!(storage.list("").expect("listed"), []);
    for step in [10, 20, 30] {
        for file in ["shard-0-of-1.safetensors", "manifest.json"] {
            storage.write_all(&format!("step-{step:08}/{file}"), b"{}").expect("written");
        }
    }
    pins::pin(storage, 10, "why").expect("pinned");
    let config = CheckpointConfig { keep_last: 1, ..CheckpointConfig::default() };
    let pruned = prune(storage, &config, 30);
    assert_eq!((pruned.steps, pruned.problems), (vec![20], Vec::new()));
    let error = rehearse(&self::storage(&server, "another secret"), 1, &World::solo());
    let said = error.expect_err("the wrong secret").to_string();
    assert!(said.contains("could not list s3://checkpoints/of/run/rehearsal"), "{said}");
}

#[test]
fn an_address_is_opened_if_it_can_be_one() {
    let open = |target: &str| -> Result<Arc<dyn Storage>, TrainError> {
        let set = [format!("checkpoint.target={target:?}")];
        let config = recipe::parse(RECIPE, "recipe.toml", &set).expect("a recipe");
        open_storage(&config, "run".as_ref())
    };
    let place = open("gs://bucket/of/run").map(|storage| storage.locate("step/file"));
    assert_eq!(place.expect("a bucket"), "gs://bucket/of/run/step/file");
    for target in ["s3:/prefix", "az://"] {
        let said = open(target).expect_err("no bucket").to_string();
        assert!(said.contains(&format!("`checkpoint.target` is {target:?}")), "{said}");
    }
}

const RECIPE: &str = r#"
name = "target"
[model]
preset = "mini_d96"
[batch]
rows = 4
[schedule]
steps = 1
"#;

/// What the binary does with these arguments, the bucket's address in its environment: its status and
/// what it said.
fn train(server: &S3Server, secret: &str, run: &std::path::Path, args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_train"))
        .args(args)
        .current_dir(run)
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", S3Server::KEY)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .output()
        .expect("the binary starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

/// Target and environment together, as a person gives them.
#[test]
fn the_binary_finds_a_bucket_by_its_address_and_the_environment() {
    let server = S3Server::start();
    let bucket: &dyn Storage = &storage(&server, S3Server::SECRET);
    bucket.write_all("step-00000040/manifest.json", b"{}").expect("written");
    let run = tempfile::tempdir().expect("a temporary folder");
    let recipe = format!("{RECIPE}[checkpoint]\ntarget = \"{}\"\n", bucket.locate(""));
    std::fs::write(run.path().join("recipe.toml"), recipe).expect("written");
    let pin = |secret: &str| {
        train(&server, secret, run.path(), &["checkpoint", "pin", ".", "40", "--reason", "why"])
    };
    let (status, said) = pin("another secret");
    assert_eq!(status, 6, "{said}");
    let (status, said) = pin(S3Server::SECRET);
    assert_eq!(status, 0, "{said}");
    assert_eq!(bucket.list("pins").expect("listed").len(), 1);
}

/// A model of seconds.
const SMALL: &str = "\
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
[data]
sources = [\"texts.jsonl\"]
heldout = [\"texts.jsonl\"]
block_rows = 16
";

#[test]
fn a_run_saves_to_a_bucket_and_goes_on_from_it() {
    let server = S3Server::start();
    let bucket: &dyn Storage = &storage(&server, S3Server::SECRET);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "In the beginning was the word. ".repeat(40);
    let lines: Vec<String> = (0..8).map(|n| format!("{{\"text\":\"{n} {text}\"}}\n")).collect();
    std::fs::write(folder.path().join("texts.jsonl"), lines.concat()).expect("written");
    let recipe =
        RECIPE.replace("preset = \"mini_d96\"\n", &format!("preset = \"mini_d96\"\n{SMALL}"));
    let recipe = recipe.replace("steps = 1\n", "steps = 4\n");
    let recipe = format!("{recipe}[checkpoint]\ntarget = \"{}\"\nevery = 1\n", bucket.locate(""));
    std::fs::write(folder.path().join("run.toml"), recipe).expect("written");
    let train = |args: &[&str]| {
        let (status, said) = train(&server, S3Server::SECRET, folder.path(), args);
        assert_eq!(status, 0, "{said}");
        said
    };
    let run = ["run", "run.toml", "--out", "run", "--resume"];
    train(&[&run[..], &["--steps", "2"]].concat());
    // Nothing of the run's folder is needed but its name.
    assert!(!folder.path().join("run/checkpoints").exists());
    let said = train(&run);
    assert!(said.contains("/step-00000002 (step 2)"), "{said}");
    let said = train(&["checkpoint", "verify", "run", "--step", "4"]);
    assert!(said.contains("whole"), "{said}");
}
