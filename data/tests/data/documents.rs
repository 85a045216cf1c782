use fulmar_data::{
    DEFAULT_DOMAIN, Document, DocumentMarks, DocumentReader, Ledger, Source, Tokenizer, build_store,
};

use crate::fixture::{Folder, Test, line, zstd};

fn read(source: &Source) -> (Vec<Document>, Ledger) {
    let mut reader = DocumentReader::open(source).expect("the file is there");
    let documents = reader.by_ref().map(|d| d.expect("a good document")).collect();
    (documents, reader.ledger())
}

#[test]
fn fields_are_read_and_unknown_ones_ignored() {
    let folder = Folder::new();
    let json = r#"{"id":"a","url":["x"],"text":"t","domain":"d","quality":2,"source":"s"}"#;
    let (documents, _) = read(&folder.source("x.jsonl", json));
    let Document { id, text, domain, quality, origin, record, .. } = &documents[0];
    assert_eq!([id, text, domain, origin], ["a", "t", "d", "s"]);
    assert_eq!((*quality, *record, documents.len()), (2, 1, 1));
}

#[test]
fn absent_fields_have_defaults() {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", "\n{\"text\":\"t\", \"id\":null}\n");
    let (documents, _) = read(&source);
    assert_eq!(documents[0].id, format!("{}:2", source.name()));
    assert_eq!(documents[0].domain, DEFAULT_DOMAIN);
    assert_eq!(documents[0].quality, 0);
    assert_eq!(documents[0].origin, source.name());
}

#[test]
fn every_frame_of_a_zstd_file_is_read_whatever_its_name() {
    let folder = Folder::new();
    let mut bytes = zstd(line("a", "first", "d", 0).as_bytes());
    bytes.extend(zstd(line("b", "second", "d", 0).as_bytes()));
    // A skippable frame of three bytes between frames (RFC 8878, section 3.1.2).
    bytes.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
    bytes.extend(zstd(line("c", "third", "d", 0).as_bytes()));
    let (documents, _) = read(&folder.source("plain.jsonl", &bytes));
    let texts: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(texts, ["first", "second", "third"]);
}

#[test]
fn the_ledger_counts_blank_lines_empty_documents_and_a_last_line_without_newline() {
    let folder = Folder::new();
    let jsonl = "{\"text\":\"é\"}\r\n\n  \t\r\n{\"text\":\"\"}\n{\"text\":\"abc\"}";
    let (read, ledger) = read(&folder.source("x.jsonl", jsonl));
    let (lines, blank_lines, documents, empty) = (5, 2, 3, 1);
    let left = Ledger { lines, blank_lines, documents, empty, ..Ledger::default() };
    let expected = Ledger { kept: 2, text_bytes: 5, ..left };
    assert_eq!(ledger, expected);
    assert!(ledger.closes());
    assert_eq!(read.len(), 2);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let folder = Folder::new();
    let (documents, _) = read(&folder.source("x.jsonl", "\u{feff}{\"text\":\"a\"}\n"));
    assert_eq!(documents[0].text, "a");
}

#[test]
fn a_single_line_of_20_megabytes_works_and_so_does_one_word_of_2() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let words = "all the world's a stage ".repeat(20_000_000 / 24);
    for (name, text) in [("words", words), ("word", "stage".repeat(400_000))] {
        let source = folder.source(name, zstd(line("big", &text, "d", 0).as_bytes()));
        let (documents, ledger) = read(&source);
        assert_eq!(ledger.text_bytes, text.len() as u64);
        assert!(documents[0].text == text);
        let out = folder.path(&format!("{name}-store"));
        let store = build_store(&[source], &tokenizer, DocumentMarks::default(), out)?;
        let mut tokens = Vec::new();
        store.cells()[0].read_tokens(0..store.cells()[0].num_tokens(), &mut tokens);
        assert!(tokenizer.decode(&tokens)? == text);
    }
    Ok(())
}
