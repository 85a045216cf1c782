//! `train data`: clusters, quality and cleaning of files, as a user runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::said;

/// A folder with two files of documents.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let subjects =
            ["ship sail anchor tide", "oven butter flour dough", "proof lemma prime set"];
        let line = |i: usize| {
            let words: Vec<&str> = subjects[i % 3].split(' ').collect();
            let text: String = (0..30).map(|j| format!("{} {i} ", words[(i + j) % 4])).collect();
            serde_json::json!({"text": text, "quality": i % 2}).to_string() + "\n"
        };
        let text: String = (0..60).map(line).collect();
        let twice = text.lines().take(6).map(|line| format!("{line}\n")).collect::<String>();
        std::fs::write(folder.join("a.jsonl"), text).expect("written");
        std::fs::write(folder.join("b.jsonl"), twice).expect("written");
        Self(folder)
    }

    /// Exit status and all that `train data` said.
    fn data(&self, words: &str) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        let output = command.current_dir(&self.0).arg("data").args(words.split(' ')).output();
        let output = output.expect("the binary starts");
        (output.status.code().expect("no signal"), said(&output))
    }

    #[track_caller]
    fn json(&self, words: &str) -> Value {
        let (status, said) = self.data(&format!("{words} --json"));
        assert_eq!(status, 0, "{said}");
        serde_json::from_str(&said).expect("JSON alone")
    }
}

#[test]
fn cleaning_writes_decisions_and_says_what_it_left_out() {
    let folder = Folder::new("data_clean");
    let (status, said) = folder.data("clean a.jsonl b.jsonl --exact-only --out clean.jsonl");
    assert_eq!(status, 0, "{said}");
    for part in ["duplicate: b.jsonl:1 repeats a.jsonl:1", "6 documents left out, in clean.jsonl"] {
        assert!(said.contains(part), "{said}");
    }
    let decisions = std::fs::read_to_string(folder.0.join("clean.jsonl")).expect("written");
    assert_eq!(decisions.lines().count(), 7);
    let report = folder.json(
        "clean a.jsonl b.jsonl --exact-only --out c.jsonl --exempt b.jsonl=duplicate,contaminated",
    );
    assert_eq!(report["sources"][1]["exempted"], 6);
    assert_eq!(report["sources"][1]["kept"], 6);
    let report = folder.json("clean a.jsonl --exact-only --out c.jsonl --evaluation b.jsonl");
    assert_eq!(report["sources"][0]["contaminated"], 6);
    assert_eq!(report["found"].as_array().map(Vec::len), Some(6));
}

#[test]
fn clusters_and_quality_become_model_files() {
    let folder = Folder::new("data_models");
    let report = folder.json("cluster a.jsonl --clusters 3 --dim 64 --out clusters.json");
    let clusters = report["clusters"].as_array().expect("a list");
    assert_eq!(clusters.len(), 3);
    assert!(clusters.iter().all(|cluster| cluster["documents"] == 20), "{report:#}");
    let words = ["quality", "a.jsonl", "--out", "quality.json", "--good-from", "1", "--dim", "64"];
    let (status, said) = folder.data(&words.join(" "));
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("held out 6 good and 6 bad: accuracy"), "{said}");
    let report = folder.json(
        "quality a.jsonl b.jsonl --good a.jsonl --bad b.jsonl --buckets 3 --dim 64 --out quality.json",
    );
    assert_eq!(report["buckets"].as_array().map(Vec::len), Some(3));
    for file in ["clusters.json", "quality.json"] {
        assert!(folder.0.join(file).exists(), "{file}");
    }
}

#[test]
fn what_cannot_be_is_said_and_writes_nothing() {
    let folder = Folder::new("data_refused");
    for (words, status, says) in [
        ("clean a.jsonl a.jsonl --out x", 3, "`a.jsonl` is matched by"),
        ("clean a.jsonl --exempt c.jsonl=duplicate --out x", 2, "one of the files"),
        ("clean a.jsonl --exempt a.jsonl=empty --out x", 2, "no reason `empty`"),
        ("clean a.jsonl --shingle words --out x", 2, "words:N or characters:N"),
        ("clean absent.jsonl --out x", 3, "absent.jsonl"),
        ("cluster a.jsonl --clusters 61 --out x", 3, "at most 60"),
        ("cluster a.jsonl --embedding 8 --out x", 3, "no embedding"),
        ("quality a.jsonl --given --out x", 3, "no score"),
        ("quality a.jsonl --out x", 2, "--given|--good"),
    ] {
        let (found, said) = folder.data(words);
        assert_eq!(found, status, "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
        assert!(!folder.0.join("x").exists(), "{words}");
    }
}
