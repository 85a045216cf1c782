//! Documents from a source, one at a time.

mod column;
mod fault;
mod field;
mod json;
mod limits;
mod lines;
mod mapping;
mod quarantine;
mod records;
mod reject;
mod table;
mod texts;

use std::sync::Arc;

pub use fault::{Fault, Place, Unit};
pub use limits::{Limits, ReadOptions};
pub use quarantine::Quarantine;
pub use reject::{Outcome, Reject, RejectSink};

use crate::{
    DataError, Document, Ledger, Result,
    source::{Opening, Source, raw::Contents},
};
use lines::JsonLines;
use mapping::{LeftOut, Mapping};
use records::{Record, Records};
use table::Table;
use texts::Texts;

/// Reads a [`Source`] as documents; memory is that of the longest record.
///
/// What is left out is counted in [`DocumentReader::ledger`] and handed to the sink of
/// [`DocumentReader::rejects_to`]. The first error ends the iteration: a file that cannot be read, an
/// archive that is truncated or damaged, and in strict mode a record that is no document.
pub struct DocumentReader {
    records: Box<dyn Records>,
    mapping: Arc<Mapping>,
    options: ReadOptions,
    sink: Option<Box<dyn RejectSink>>,
    ledger: Ledger,
    ended: bool,
}

impl DocumentReader {
    /// Opens a source strictly: [`ReadOptions::STRICT`].
    ///
    /// # Errors
    /// As [`DocumentReader::open_with`].
    pub fn open(source: &Source) -> Result<Self> {
        Self::open_with(source, ReadOptions::STRICT)
    }

    /// Opens a source.
    ///
    /// # Errors
    /// [`DataError::Io`] if a file cannot be opened or read, [`DataError::UnreadableFormat`];
    /// [`DataError::TruncatedArchive`], [`DataError::DamagedArchive`] or [`DataError::NoColumn`] for
    /// a Parquet file.
    pub fn open_with(source: &Source, options: ReadOptions) -> Result<Self> {
        let mapping = Arc::new(Mapping::new(source.shared_config()));
        let name: Arc<str> = source.name().into();
        let records: Box<dyn Records> = match source.opening()? {
            Opening::JsonLines(contents) => {
                Box::new(JsonLines::open(name, &contents, Arc::clone(&mapping), options)?)
            }
            Opening::Parquet(Contents::File(path)) => {
                Box::new(Table::open(name, &path, Arc::clone(&mapping))?)
            }
            Opening::Parquet(Contents::Static(_)) => {
                return Err(DataError::ParquetInMemory { file: name.to_string() });
            }
            Opening::Texts(files) => Box::new(Texts::new(files, Arc::clone(&mapping), options)),
        };
        let (sink, ledger) = (None, Ledger::default());
        Ok(Self { records, mapping, options, sink, ledger, ended: false })
    }

    /// Has what is left out handed to a sink; without one it is only counted.
    #[must_use]
    pub fn rejects_to(mut self, sink: Box<dyn RejectSink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// What was read so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// What became of the next record; none at the end. The sink of [`DocumentReader::rejects_to`]
    /// gets nothing of it.
    ///
    /// # Errors
    /// As [`DocumentReader`] says; nothing comes after one.
    pub fn next_outcome(&mut self) -> Option<Result<Outcome>> {
        if self.ended {
            return None;
        }
        let outcome = self.read_outcome().transpose();
        self.ended = !matches!(outcome, Some(Ok(_)));
        outcome
    }

    fn read_outcome(&mut self) -> Result<Option<Outcome>> {
        let Some(mut record) = self.records.next(&mut self.ledger)? else { return Ok(None) };
        match self.mapping.document(&mut record, &self.options) {
            Ok(document) => {
                self.ledger.keep(&document.text);
                Ok(Some(Outcome::Document(document)))
            }
            Err(why) => self.leave_out(&record, why).map(Some),
        }
    }

    fn leave_out(&mut self, record: &Record, why: LeftOut) -> Result<Outcome> {
        let why = if self.options.strict {
            let (file, unit) = (Arc::clone(&record.file), self.records.unit());
            reject::error_of(Place { file, unit, record: record.number }, why)?
        } else {
            why
        };
        let (raw, raw_bytes) = self.records.raw(record);
        let reject = Reject::new(record, &why, (&raw, raw_bytes));
        self.ledger.leave_out(reject.reason);
        Ok(Outcome::Reject(reject))
    }
}

impl Iterator for DocumentReader {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_outcome()? {
                Ok(Outcome::Document(document)) => return Some(Ok(document)),
                Err(error) => return Some(Err(error)),
                Ok(Outcome::Reject(reject)) => {
                    let Some(sink) = &mut self.sink else { continue };
                    if let Err(error) = sink.take(reject) {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}
