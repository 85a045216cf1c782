//! Small corpora and stores.

use std::{error::Error, fs, io::Write, path::PathBuf, sync::Arc};

use fulmar_data::{
    Document, DocumentMarks, DocumentReader, Ledger, Outcome, ReadOptions, Reject, Source, Store,
    Tokenizer, build_store,
};
use tempfile::TempDir;

pub(crate) type Test = Result<(), Box<dyn Error>>;

/// A folder that goes away with the test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and names it as a source.
    pub(crate) fn source(&self, name: &str, contents: impl AsRef<[u8]>) -> Source {
        fs::write(self.path(name), contents).expect("the folder is writable");
        Source::file(self.path(name))
    }

    /// Names of what lies in the folder, hidden files too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the folder is readable");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("the entry is readable").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

pub(crate) fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.include_checksum(true).expect("a setting");
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn line(id: &str, text: &str, domain: &str, quality: u32) -> String {
    let json = serde_json::json!({"id": id, "text": text, "domain": domain, "quality": quality});
    format!("{json}\n")
}

/// 60 documents of different lengths in three cells.
pub(crate) fn corpus() -> String {
    let cells = [("verse", 1), ("verse", 3), ("prose", 4)];
    let document = |i: usize| {
        let (domain, quality) = cells[[0, 1, 2, 2, 1, 0, 1][i % 7]];
        let text: String =
            (0..(i * 7) % 40 + 1).map(|j| format!("word{} and {i}. ", i * j)).collect();
        line(&format!("doc{i}"), &text, domain, quality)
    };
    (0..60).map(document).collect()
}

/// Reads to the end; what came in, what was left out, and the account of it, which closes.
pub(crate) fn read_all(
    source: &Source,
    options: ReadOptions,
) -> (Vec<Document>, Vec<Reject>, Ledger) {
    let mut reader = DocumentReader::open_with(source, options).expect("the file is there");
    let (mut documents, mut rejects) = (Vec::new(), Vec::new());
    while let Some(outcome) = reader.next_outcome() {
        match outcome.expect("lenient") {
            Outcome::Document(document) => documents.push(document),
            Outcome::Reject(reject) => rejects.push(reject),
        }
    }
    let ledger = reader.ledger();
    assert!(ledger.closes(), "{ledger:?}");
    assert_eq!(ledger.documents, (documents.len() + rejects.len()) as u64);
    (documents, rejects, ledger)
}

/// The error's messages, outermost first.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

pub(crate) fn store_of(folder: &Folder, name: &str, jsonl: &str) -> Arc<Store> {
    let source = folder.source(&format!("{name}.jsonl"), jsonl);
    let tokenizer = Tokenizer::shipped().expect("the shipped tokenizer");
    let marks = DocumentMarks::default();
    let store = build_store(&[source], &tokenizer, marks, folder.path(name));
    Arc::new(store.expect("a good corpus"))
}
