//! Documents from JSON lines, one at a time.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::error::Category;

use crate::{
    CellKey, DataError, Ledger, Reason, Result,
    source::{LineReader, Source},
};

/// Domain of a document that names none.
pub const DEFAULT_DOMAIN: &str = "default";

/// A piece of text that is read from beginning to end, with what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Name within the corpus; `<file>:<line>` when the line has no `id`.
    pub id: String,
    /// The text, never empty.
    pub text: String,
    /// Domain, [`DEFAULT_DOMAIN`] when the line has none.
    pub domain: String,
    /// Quality level, 0 when the line has none.
    pub quality: u32,
    /// Origin; the name of the file when the line has no `source`.
    pub origin: String,
    /// Name of the file that holds it.
    pub file: Arc<str>,
    /// Its place in the file, counted from 1: the line, the row of the table; 1 for a text file.
    pub record: u64,
    /// A given score of its quality, where the file has one.
    pub score: Option<f64>,
    /// A given embedding of its text, where the file has one.
    pub embedding: Option<Vec<f32>>,
}

impl Document {
    /// The cell that this document belongs to.
    pub fn cell(&self) -> CellKey {
        CellKey { domain: self.domain.clone(), quality: self.quality }
    }
}

/// The fields we read; others are ignored, as corpora carry many.
#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    text: Option<String>,
    domain: Option<String>,
    quality: Option<u32>,
    source: Option<String>,
}

/// Reads a [`Source`] as documents; memory is that of the longest line.
///
/// Empty documents and blank lines are skipped and counted in [`DocumentReader::ledger`]. The first
/// error ends the iteration.
pub struct DocumentReader {
    name: Arc<str>,
    lines: LineReader,
    line: Vec<u8>,
    ledger: Ledger,
    ended: bool,
}

impl DocumentReader {
    /// Opens a source.
    ///
    /// # Errors
    /// [`DataError::Io`] if the file cannot be opened or read.
    pub fn open(source: &Source) -> Result<Self> {
        Ok(Self {
            name: source.name().into(),
            lines: source.open()?,
            line: Vec::new(),
            ledger: Ledger::default(),
            ended: false,
        })
    }

    /// What was read so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn read_document(&mut self) -> Result<Option<Document>> {
        while self.lines.read_line(&mut self.line)? {
            self.ledger.lines += 1;
            if self.ledger.lines == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                // A byte order mark, which some editors write, is not part of the JSON.
                self.line.drain(..3);
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                self.ledger.blank_lines += 1;
                continue;
            }
            let document = self.parse_line()?;
            self.ledger.documents += 1;
            if document.text.is_empty() {
                self.ledger.leave_out(Reason::Empty);
                continue;
            }
            self.ledger.keep(&document.text);
            return Ok(Some(document));
        }
        if self.ledger.lines == 0 {
            return Err(DataError::EmptyFile { file: self.name.to_string() });
        }
        Ok(None)
    }

    fn parse_line(&self) -> Result<Document> {
        let (file, line) = (self.name.to_string(), self.ledger.lines);
        let json = match std::str::from_utf8(&self.line) {
            Ok(json) => json.trim_ascii(),
            Err(error) => {
                return Err(DataError::InvalidUtf8 { file, line, byte: error.valid_up_to() });
            }
        };
        let fields: Line = match serde_json::from_str(json) {
            Ok(_) if !json.starts_with('{') => {
                // Serde reads an array as the fields in order; a corpus never means that.
                let found = json.chars().next().unwrap_or(' ');
                return Err(DataError::NotAnObject { file, line, found });
            }
            Ok(fields) => fields,
            Err(source) if source.classify() == Category::Data && json.starts_with('{') => {
                return Err(DataError::FieldType { file, line, source });
            }
            Err(source) => return Err(DataError::NotJson { file, line, source }),
        };
        let text = fields.text.ok_or(DataError::MissingText { file, line })?;
        Ok(Document {
            id: fields.id.unwrap_or_else(|| format!("{}:{line}", self.name)),
            text,
            domain: fields.domain.unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
            quality: fields.quality.unwrap_or(0),
            origin: fields.source.unwrap_or_else(|| self.name.to_string()),
            file: Arc::clone(&self.name),
            record: line,
            score: None,
            embedding: None,
        })
    }
}

impl Iterator for DocumentReader {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let document = self.read_document().transpose();
        self.ended = !matches!(document, Some(Ok(_)));
        document
    }
}
