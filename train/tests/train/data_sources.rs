//! `train data sources`.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// What the command printed, and its exit status.
fn sources(folder: &TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let command = Command::new(env!("CARGO_BIN_EXE_train"))
        .args(["data", "sources"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the train binary starts");
    let said = [command.stdout, command.stderr].concat();
    (command.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn pool() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("written");
        std::fs::write(path, contents).expect("written");
    };
    write("pool/books/b.jsonl", b"{\"text\":\"b\"}\n");
    write("pool/books/a.jsonl", &[0x28, 0xb5, 0x2f, 0xfd, 0]);
    write("pool/notes/deep/n.txt", b"a note");
    let source =
        |name: &str, path: &str| format!("[[sources]]\nname = \"{name}\"\npaths = [\"{path}\"]\n");
    let recipe = source("notes", "notes") + &source("books", "books/*");
    write("pool/recipe.toml", recipe.as_bytes());
    folder
}

#[test]
fn the_files_of_a_recipe_are_listed_in_their_order() {
    let folder = pool();
    let (status, table) = sources(&folder, &["./pool/recipe.toml"]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec!["source", "format", "compression", "size", "file"],
        vec!["notes", "text", "none", "6", "B", "notes/deep/n.txt"],
        vec!["books", "jsonl", "zstd", "5", "B", "books/a.jsonl"],
        vec!["books", "jsonl", "none", "13", "B", "books/b.jsonl"],
        vec!["3", "files,", "24", "bytes"],
    ];
    assert_eq!((status, lines), (Some(0), expected.to_vec()), "{table}");
}

#[test]
fn files_and_globs_are_listed_as_json() {
    let folder = pool();
    let (status, text) = sources(&folder, &["pool/books/b.jsonl", "pool/**/*.txt", "--json"]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let file = |file: &str, format: &str, bytes: u64| json!({"source": "files", "file": file, "format": format, "compression": "none", "bytes": bytes});
    let expected =
        json!([file("pool/notes/deep/n.txt", "text", 6), file("pool/books/b.jsonl", "jsonl", 13)]);
    assert_eq!((status, found), (Some(0), expected));
}

#[test]
fn a_glob_without_a_file_is_an_error_of_data() {
    let (status, said) = sources(&pool(), &["pool/*.parquet"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("`pool/*.parquet` matches no file"), "{said}");
}
