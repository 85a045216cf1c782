use std::fs;

use fulmar_data::{DataError, DocumentMarks, Source, Tokenizer, build_store};

use crate::fixture::{Folder, chain, corpus, line, zstd};

/// Builds a store that must fail, and checks that nothing is left behind.
fn error_of(folder: &Folder, source: &Source) -> String {
    let before = folder.names();
    let tokenizer = Tokenizer::shipped().expect("the shipped tokenizer");
    let out = folder.path("store");
    let error =
        build_store(std::slice::from_ref(source), &tokenizer, DocumentMarks::default(), out)
            .expect_err("the corpus is bad");
    assert_eq!(folder.names(), before, "nothing half-written stays");
    chain(&error)
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::new();
    let message = error_of(&folder, &Source::file(folder.path("absent.jsonl")));
    assert_says(&message, &["cannot open", "absent.jsonl", "No such file"]);
}

#[test]
fn an_empty_file_is_an_error() {
    let folder = Folder::new();
    for contents in [Vec::new(), zstd(b"")] {
        let message = error_of(&folder, &folder.source("none.jsonl", contents));
        assert_says(&message, &["none.jsonl", "is empty"]);
    }
}

#[test]
fn a_corpus_of_nothing_but_empty_documents_is_an_error() {
    let folder = Folder::new();
    let message = error_of(&folder, &folder.source("x.jsonl", "{\"text\":\"\"}\n\n"));
    assert_says(&message, &["no document with text", "1 source"]);
}

#[test]
fn a_line_that_is_not_json_is_named() {
    let folder = Folder::new();
    for bad in ["{\"text\": \"unclosed", "text", "{\"text\":\"\\ud800\"}", "{\"text\":\"a\"} x"] {
        let jsonl = format!("{}\n{bad}\n", line("a", "b", "d", 0));
        let message = error_of(&folder, &folder.source("x.jsonl", jsonl));
        assert_says(&message, &["x.jsonl` line 3: not a JSON object"]);
    }
}

#[test]
fn json_that_is_not_an_object_is_refused() {
    let folder = Folder::new();
    let message = error_of(&folder, &folder.source("x.jsonl", r#"["id", "text", "d", 1, "s"]"#));
    assert_says(&message, &["x.jsonl` line 1", "starts with `[`", "need an object"]);
}

#[test]
fn a_document_without_text_is_an_error() {
    let folder = Folder::new();
    for bad in ["{\"id\":\"a\"}", "{\"text\":null}"] {
        let jsonl = format!("{}{bad}", line("a", "b", "d", 0));
        let message = error_of(&folder, &folder.source("x.jsonl", jsonl));
        assert_says(&message, &["x.jsonl` line 2", "no `text`"]);
    }
}

#[test]
fn a_field_of_another_type_is_an_error() {
    let folder = Folder::new();
    let message = error_of(&folder, &folder.source("x.jsonl", r#"{"text":"a","quality":"high"}"#));
    assert_says(&message, &["x.jsonl` line 1", "wrong type", "\"high\"", "u32"]);
}

#[test]
fn invalid_utf8_is_named_with_line_and_byte() {
    let folder = Folder::new();
    let mut jsonl = line("a", "b", "d", 0).into_bytes();
    jsonl.extend(b"{\"text\":\"\xff\"}\n");
    let message = error_of(&folder, &folder.source("x.jsonl", jsonl));
    assert_says(&message, &["x.jsonl` line 2", "invalid UTF-8 at byte 9"]);
}

#[test]
fn a_truncated_archive_is_named_with_its_byte() {
    let folder = Folder::new();
    let whole = zstd(corpus().as_bytes());
    for cut in [whole.len() / 2, whole.len() - 1] {
        let message = error_of(&folder, &folder.source("x.zst", &whole[..cut]));
        assert_says(&message, &["x.zst` is truncated", &format!("at byte {cut} ")]);
    }
}

#[test]
fn a_damaged_archive_is_an_error() {
    let folder = Folder::new();
    let mut bytes = zstd(corpus().as_bytes());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let message = error_of(&folder, &folder.source("x.zst", &bytes));
    assert_says(&message, &["x.zst` is damaged"]);
    let mut bytes = zstd(corpus().as_bytes());
    bytes.extend(b"trailing rubbish");
    let message = error_of(&folder, &folder.source("x.zst", &bytes));
    assert_says(&message, &["x.zst` is damaged"]);
}

#[test]
fn a_domain_that_cannot_be_a_folder_is_an_error() {
    let folder = Folder::new();
    for domain in ["../up", "", "a/b", ".hidden", "übung"] {
        let message = error_of(&folder, &folder.source("x.jsonl", line("doc7", "t", domain, 1)));
        assert_says(&message, &["doc7", "`domain`", &format!("{domain:?}")]);
    }
}

#[test]
fn cells_that_differ_only_in_case_are_an_error() {
    let folder = Folder::new();
    let jsonl = line("a", "t", "Verse", 1) + &line("b", "t", "verse", 1);
    let message = error_of(&folder, &folder.source("x.jsonl", jsonl));
    assert_says(&message, &["`Verse/q1`", "`verse/q1`", "only in case"]);
}

#[test]
fn an_existing_folder_is_never_overwritten() {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", corpus());
    fs::create_dir(folder.path("store")).expect("the folder is writable");
    let tokenizer = Tokenizer::shipped().expect("the shipped tokenizer");
    let marks = DocumentMarks::default();
    let error = build_store(&[source], &tokenizer, marks, folder.path("store"));
    assert!(matches!(error, Err(DataError::StoreExists { .. })));
}
