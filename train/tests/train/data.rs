//! `train data` as people run it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn data(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    let output = command.arg("data").args(arguments).current_dir(folder).output();
    let output = output.expect("the binary starts");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.concat();
    (output, said)
}

/// 40 documents in two files and two cells, of which one is empty and one line is blank.
fn write_files(folder: &Path) {
    let line = |i: usize| {
        let text = if i == 9 {
            String::new()
        } else {
            format!("Sentence {i} of the test. ").repeat(i + 1)
        };
        let domain = ["verse", "prose"][i % 2];
        format!("{{\"id\":\"doc{i}\",\"domain\":\"{domain}\",\"quality\":1,\"text\":\"{text}\"}}\n")
    };
    fs::create_dir(folder.join("files")).expect("the folder is writable");
    let first: String = (0..20).map(line).collect();
    fs::write(folder.join("files/a.jsonl"), first + "\n").expect("the folder is writable");
    fs::write(folder.join("files/b.jsonl"), (20..40).map(line).collect::<String>())
        .expect("the folder is writable");
    let recipe = "[[sources]]\nname = \"files\"\npaths = [\"files/*.jsonl\"]\n";
    fs::write(folder.join("pool.toml"), recipe).expect("the folder is writable");
}

#[test]
fn a_pool_is_built_looked_at_and_verified() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    write_files(folder);
    let build = ["build", "pool.toml", "--out", "stores/pool", "--threads", "2"];
    let (output, said) = data(folder, &build);
    assert!(output.status.success(), "{said}");
    for part in ["empty", "a.jsonl", "all 2 files", "39 documents tokenised, 0 taken over"] {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    let (output, said) = data(folder, &build);
    assert!(output.status.success() && said.contains("stores/pool was there: 2 cells"), "{said}");

    let inspect = ["inspect", "stores/pool", "--samples", "2", "--cell", "prose/q1"];
    let (output, said) = data(folder, &inspect);
    assert!(output.status.success(), "{said}");
    for part in ["prose/q1: tokens of a document", "####", "a.jsonl, 2 to 20: 9", "| Sentence 1 of"]
    {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    assert!(!said.contains("verse/q1: tokens"), "{said}");
    let (_, said) = data(folder, &["inspect", "stores/pool", "--cell", "prose/q2"]);
    assert!(
        said.contains("field `--cell` is prose/q2, needed one of prose/q1, verse/q1"),
        "{said}"
    );
    let (output, _) = data(folder, &["inspect", "stores/pool", "--json", "--samples", "1"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["manifest"]["sources"][0]["ledger"]["empty"], 1);
    let lengths = json["cells"][0]["lengths"].as_array().expect("a histogram");
    let counted: u64 = lengths.iter().filter_map(|bin| bin["documents"].as_u64()).sum();
    assert_eq!(counted, 19);
    assert_eq!(json["cells"][0]["samples"][0]["id"], "doc1");

    let (output, said) = data(folder, &["verify", "stores/pool"]);
    assert!(output.status.success() && said.contains("whole, 4 files"), "{said}");
    let shard = folder.join("stores/pool/verse/q1/00000.tokens");
    let mut bytes = fs::read(&shard).expect("the shard");
    bytes[500] ^= 1;
    fs::write(&shard, bytes).expect("the shard is writable");
    let (output, said) = data(folder, &["verify", "stores/pool", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("\"whole\": false") && said.contains("q1/00000.tokens"), "{said}");
}

#[test]
fn a_bad_file_or_recipe_publishes_nothing_and_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    write_files(folder);
    fs::write(folder.join("files/c.jsonl"), "{\"text\": 5}\n").expect("the folder is writable");
    let recipe = fs::read_to_string(folder.join("pool.toml")).expect("the recipe");
    let recipe = format!("strict = true\n{recipe}");
    fs::write(folder.join("strict.toml"), recipe).expect("the folder is writable");
    let (output, said) = data(folder, &["build", "strict.toml", "--out", "store"]);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("c.jsonl` line 1"), "{said}");
    assert!(!folder.join("store").exists() && !folder.join(".store.partial").exists());
    fs::write(folder.join("odd.toml"), "tokeniser = \"x.json\"").expect("the folder is writable");
    let (output, said) = data(folder, &["build", "odd.toml", "--out", "store"]);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("`odd.toml` is no data recipe") && said.contains("tokeniser"), "{said}");
}

#[test]
fn a_tokenizer_is_trained_and_a_store_built_with_it_brings_it_to_a_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    write_files(folder);
    let train = ["tokenizer", "pool.toml", "--vocab-size", "300", "--out", "t.json"];
    let (output, said) = data(folder, &train);
    assert!(output.status.success() && said.contains("300 tokens of 39 documents"), "{said}");
    let (output, said) = data(folder, &train);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let few =
        ["tokenizer", "files/a.jsonl", "--vocab-size", "260", "--every", "4", "--out", "few.json"];
    assert!(data(folder, &few).1.contains("260 tokens of 5 documents"));

    let recipe = fs::read_to_string(folder.join("pool.toml")).expect("the recipe");
    fs::write(folder.join("own.toml"), format!("tokenizer = \"t.json\"\n{recipe}"))
        .expect("the folder is writable");
    let (output, said) = data(folder, &["build", "own.toml", "--out", "own"]);
    assert!(output.status.success(), "{said}");
    let data =
        fulmar_train::config::DataConfig { store: Some(folder.join("own")), ..Default::default() };
    let model = fulmar_model::Preset::MiniD96.config();
    let tokenizer = fulmar_train::assemble::tokenizer(&model, &data).expect("the store's own");
    assert_eq!(tokenizer.vocab_size(), 300);
}
