//! Text files, each of which is a document.

use std::{
    borrow::Cow,
    io::{self, Read},
    sync::Arc,
};

use super::{
    ReadOptions,
    fault::Unit,
    field::Field,
    mapping::{LeftOut, Mapping, TEXT},
    records::{Record, Records},
};
use crate::{
    Fault, Ledger, Reason, Result,
    source::{TextFile, raw::Unpacked},
};

/// Reads one file after the other; memory is that of the longest text that is taken.
pub(crate) struct Texts {
    files: Arc<[TextFile]>,
    next: usize,
    mapping: Arc<Mapping>,
    options: ReadOptions,
    /// What was read last, where it was no text.
    bytes: Vec<u8>,
    /// Bytes of what was read last.
    num_bytes: u64,
}

impl Texts {
    pub(crate) fn new(files: Arc<[TextFile]>, mapping: Arc<Mapping>, options: ReadOptions) -> Self {
        Self { files, next: 0, mapping, options, bytes: Vec::new(), num_bytes: 0 }
    }

    /// The file's text, or why it has none; and the offset of a fault.
    fn read(&mut self, file: &TextFile) -> Result<Result<String, (u64, LeftOut)>> {
        let max = self.options.limits.max_bytes;
        let mut unpacked = Unpacked::open(Arc::clone(&file.name), &file.contents)?;
        // Four more: three of a byte order mark, one to see that the text is too long.
        let taken = unpacked.reader().take(max.saturating_add(4)).read_to_end(&mut self.bytes);
        // The rest is passed over, not left: an archive must be whole, and the length is said.
        let passed = taken.and_then(|_| io::copy(unpacked.reader(), &mut io::sink()));
        let passed = passed.map_err(|error| unpacked.explain(error, 0))?;
        let mark = if self.bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        self.bytes.drain(..mark);
        self.num_bytes = self.bytes.len() as u64 + passed;
        if self.num_bytes > max {
            let evidence = format!("{} bytes; `limits.max_bytes` is {max}", self.num_bytes);
            return Ok(Err((0, LeftOut::Unwanted(Reason::TooLong, evidence))));
        }
        Ok(String::from_utf8(std::mem::take(&mut self.bytes)).map_err(|error| {
            let byte = (mark + error.utf8_error().valid_up_to()) as u64;
            self.bytes = error.into_bytes();
            (byte, Fault::InvalidUtf8 { byte, of: "the file".to_owned() }.into())
        }))
    }
}

impl Records for Texts {
    fn next(&mut self, ledger: &mut Ledger) -> Result<Option<Record>> {
        let files = Arc::clone(&self.files);
        let Some(file) = files.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.bytes.clear();
        let read = self.read(file)?;
        ledger.documents += 1;
        let mut fields = vec![Field::Null; self.mapping.columns().len()];
        let (byte, problem) = match read {
            Ok(text) => {
                fields[TEXT] = Field::Text(text);
                (0, None)
            }
            Err((byte, problem)) => (byte, Some(problem)),
        };
        let (file, id) = (Arc::clone(&file.name), Some(file.id.clone()));
        Ok(Some(Record { file, number: 1, byte, id, fields, problem }))
    }

    fn raw<'a>(&'a self, record: &'a Record) -> (Cow<'a, [u8]>, u64) {
        let bytes = match record.fields.get(TEXT) {
            Some(Field::Text(text)) => Cow::Borrowed(text.as_bytes()),
            _ => Cow::Borrowed(&self.bytes[..]),
        };
        (bytes, self.num_bytes)
    }

    fn unit(&self) -> Unit {
        Unit::File
    }
}
