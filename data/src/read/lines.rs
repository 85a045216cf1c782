//! JSON lines.

use std::{
    borrow::Cow,
    io::{self, BufRead, Read},
    sync::Arc,
};

use super::{
    ReadOptions,
    fault::Unit,
    json,
    mapping::{LeftOut, Mapping},
    records::{Record, Records},
};
use crate::{
    DataError, Ledger, Reason, Result,
    source::raw::{Contents, Unpacked},
};

/// Reads one object a line; memory is that of the longest line that is taken, and of its text.
pub(crate) struct JsonLines {
    file: Arc<str>,
    mapping: Arc<Mapping>,
    options: ReadOptions,
    unpacked: Unpacked,
    /// The line read last, or its start, without a byte order mark.
    line: Vec<u8>,
    /// Bytes of that line.
    line_bytes: u64,
    /// Decompressed bytes before the next line.
    offset: u64,
}

impl JsonLines {
    pub(crate) fn open(
        file: Arc<str>,
        contents: &Contents,
        mapping: Arc<Mapping>,
        options: ReadOptions,
    ) -> Result<Self> {
        let unpacked = Unpacked::open(Arc::clone(&file), contents)?;
        let (line, line_bytes, offset) = (Vec::new(), 0, 0);
        Ok(Self { file, mapping, options, unpacked, line, line_bytes, offset })
    }

    /// Reads the next line, its newline too. False at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.offset += self.line_bytes;
        self.line.clear();
        let max = self.options.limits.max_line_bytes();
        let reader = self.unpacked.reader();
        let taken = reader.take(max).read_until(b'\n', &mut self.line)? as u64;
        let cut = taken == max && self.line.last() != Some(&b'\n');
        let passed_over = if cut { self.unpacked.reader().skip_until(b'\n')? as u64 } else { 0 };
        self.line_bytes = taken + passed_over;
        Ok(self.line_bytes > 0)
    }

    /// A byte order mark, which some editors write, is not part of the JSON.
    fn drop_byte_order_mark(&mut self) {
        if self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
            self.line_bytes -= 3;
            self.offset += 3;
        }
    }

    fn record(&self, number: u64) -> Record {
        let (file, byte) = (Arc::clone(&self.file), self.offset);
        let record = Record { file, number, byte, id: None, fields: Vec::new(), problem: None };
        let max = self.options.limits.max_line_bytes();
        if self.line_bytes > max {
            let found = self.line_bytes;
            let evidence =
                format!("a line of {found} bytes; `limits.max_bytes` allows lines of {max}");
            let problem = Some(LeftOut::Unwanted(Reason::TooLong, evidence));
            return Record { problem, ..record };
        }
        match json::parse(&self.line, self.mapping.columns()) {
            Ok(fields) => Record { fields, ..record },
            Err(fault) => {
                Record { byte: byte + fault.offset(), problem: Some(fault.into()), ..record }
            }
        }
    }
}

impl Records for JsonLines {
    fn next(&mut self, ledger: &mut Ledger) -> Result<Option<Record>> {
        loop {
            let read = self.read_line();
            if !read.map_err(|error| self.unpacked.explain(error, ledger.lines))? {
                // An archive without lines was meant to be one; a file without bytes was not.
                let no_bytes = self.unpacked.position() == 0;
                if ledger.lines == 0 && (self.options.strict || no_bytes) {
                    return Err(DataError::EmptyFile { file: self.file.to_string() });
                }
                return Ok(None);
            }
            ledger.lines += 1;
            if ledger.lines == 1 {
                self.drop_byte_order_mark();
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                ledger.blank_lines += 1;
                continue;
            }
            ledger.documents += 1;
            return Ok(Some(self.record(ledger.lines)));
        }
    }

    fn raw<'a>(&'a self, _: &'a Record) -> (Cow<'a, [u8]>, u64) {
        (Cow::Borrowed(&self.line), self.line_bytes)
    }

    fn unit(&self) -> Unit {
        Unit::Line
    }
}
